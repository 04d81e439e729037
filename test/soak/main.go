package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/test/netlab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	binary := flag.String("bin", "bin/fairlead", "the agent")
	length := flag.Duration("for", 5*time.Minute, "how long to change and ask, at most an hour")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of all chances")
	flag.Parse()
	if err := run(ctx, *binary, min(*length, time.Hour), *seed); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary string, length time.Duration, seed uint64) (err error) {
	base := "/dev/shm" // 200 writes a second would otherwise test the disk
	if _, err := os.Stat(base); err != nil {
		base = ""
	}
	scratch, err := os.MkdirTemp(base, "fairlead-soak-")
	if err != nil {
		return err
	}
	dir := filepath.Join(scratch, "manifests")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	lab, err := netlab.New(ctx, netlab.Config{PodsPerNode: podsPerNode})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	w, err := newWorld(lab, dir, seed)
	if err != nil {
		return err
	}
	fmt.Printf("%d Services, %d changes/s, %s, seed %d, in %s\n", services, changesPerSec, length, seed, scratch)
	a := &agent{binary: binary, dir: dir, log: filepath.Join(scratch, "agent.log"), lab: lab}
	if err := a.start(ctx); err != nil {
		return err
	}
	defer a.proc.Kill()
	rep := &report{w: w, t: &traffic{w: w, lab: lab, late: &starving{}, kind: map[string]*count{}}, log: a.log}
	rep.writes, _ = a.metric(ctx, "fairlead_operations_total")
	if err := rep.soak(ctx, a, length, seed); err != nil {
		return err
	}
	if err := rep.atTheEnd(ctx, a, scratch); err != nil {
		return err
	}
	if err := rep.print(); err != nil {
		return fmt.Errorf("%w (seed %d; see %s)", err, seed, scratch)
	}
	return os.RemoveAll(scratch)
}

// soak changes Services and sends requests for the given time. Then it lets the agent come to rest
// while the requests continue.
func (r *report) soak(ctx context.Context, a *agent, length time.Duration, seed uint64) error {
	start := time.Now()
	changing, stopChanging := context.WithTimeout(ctx, length)
	defer stopChanging()
	asking, stopAsking := context.WithCancel(ctx)
	defer stopAsking()
	g, asking := errgroup.WithContext(asking)
	for i := range uint64(askers) {
		g.Go(func() error { return r.t.ask(asking, seed+i) })
	}
	for i := range uint64(flows) {
		g.Go(func() error { return r.t.hold(asking, seed+i) })
	}
	g.Go(func() (err error) { r.samples, err = measure(changing, a); return err })
	g.Go(func() error { return r.w.churn(changing) })
	g.Go(func() error { return r.t.late.run(asking, a) })
	g.Go(func() error {
		defer stopAsking()
		<-changing.Done()
		r.took = time.Since(start)
		return a.settled(ctx, 3*time.Minute)
	})
	return errors.Join(g.Wait(), ctx.Err())
}
