package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"time"
)

// result is the figures of one size: CPU in milliseconds, memory in megabytes.
type result struct {
	Mode                    string
	Services, Endpoints     int
	BuildCPU, BuildWall     float64
	BuildOps                int
	OneCPU, OneWall, OneOps float64
	HundredCPU, HundredOps  float64
	RestartCPU, RestartWall float64
	RestartOps              int
	AuditCPU                float64
	HeapMB, RSSMB, PeakMB   float64
	SteadyReads             uint64
}

func main() {
	mode := flag.String("mode", "nftables", "nftables, iptables-legacy or iptables-nft")
	n := flag.Int("n", 1000, "Services")
	e := flag.Int("e", 10, "endpoints of each")
	profile := flag.String("cpuprofile", "", "write a CPU profile of the full build to this file")
	inside := flag.Bool("inside", false, "measure one changed endpoint of Services with many endpoints, ports or addresses instead")
	asTable := flag.Bool("table", false, "print the JSON lines of standard input as a table")
	bin := flag.String("commands", "", "measure the answers of this agent instead")
	var often tries
	flag.IntVar(&often.audits, "audits", 10, "audits with no change beside them, at least 1, with -commands")
	flag.IntVar(&often.pairs, "pairs", 50, "changes alone, and as many beside an audit, with -commands")
	flag.Parse()
	if often.audits < 1 || often.pairs < 0 {
		fmt.Fprintln(os.Stderr, "bench: -audits must be 1 or more, -pairs 0 or more")
		os.Exit(2)
	}
	if *asTable && *inside {
		tableInside(os.Stdin, os.Stdout)
		return
	}
	if *asTable {
		table(os.Stdin, os.Stdout)
		return
	}
	if err := refuseInitialNamespace(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if *inside || *bin != "" {
		err := error(nil)
		if *inside {
			err = runInside(*mode, *profile)
		} else {
			err = measureCommands(*bin, *mode, size{*n, *e}, often, os.Stdout)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	r, err := measure(*mode, *n, *e, *profile)
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %d x %d: %v\n", *n, *e, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		os.Exit(1)
	}
}

// refuseInitialNamespace: a benchmark that wrote into the machine's own rules would
// break it. Its namespace must differ from that of the shell that called unshare
// (process 1 cannot always be read).
func refuseInitialNamespace() error {
	self, err1 := os.Readlink("/proc/self/ns/net")
	parent, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", os.Getppid()))
	if err1 != nil || err2 != nil || self == parent {
		return fmt.Errorf("bench/sync runs in a network namespace of its own only: use make bench")
	}
	return nil
}

func measure(mode string, n, e int, profile string) (*result, error) {
	r := &result{Mode: mode, Services: n, Endpoints: e}
	c := &cluster{n: n, e: e, last: map[int]int{}}
	making := c.makeAll()
	a, err := start(mode)
	if err != nil {
		return nil, err
	}
	stop, err := startProfile(profile)
	if err != nil {
		return nil, err
	}
	c0 := cpu()
	t0 := time.Now()
	t, err := a.load(c)
	stop()
	if err != nil {
		return nil, err
	}
	r.BuildCPU, r.BuildWall, r.BuildOps = ms(cpu()-c0-making), ms(time.Since(t0)), t.Operations
	if err := a.changes(c, r); err != nil {
		return nil, err
	}
	r.HeapMB = mb(liveHeap())
	now, peak := rss()
	r.RSSMB, r.PeakMB = mb(now), mb(peak)
	if err := a.stop(); err != nil {
		return nil, err
	}
	return r, restart(c, r)
}

// startProfile begins a CPU profile, if one is requested; stop ends it.
func startProfile(file string) (stop func(), err error) {
	if file == "" {
		return func() {}, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, pprof.StartCPUProfile(f)
}

// changes measures single changes and a batch of 100, and checks that nothing is read
// from the kernel.
func (a *agent) changes(c *cluster, r *result) error {
	before := a.reads()
	rounds, batches := 1000, 10
	if r.Mode != "nftables" { // a run of iptables-restore each
		rounds, batches = 20, 3
	}
	c0, t0, ops := cpu(), time.Now(), 0
	for i := range rounds {
		a.mail.Put(sliceEvent(a.conv, c.change(i%c.n, i+1)))
		t, err := a.await()
		if err != nil {
			return err
		}
		ops += t.Operations
	}
	r.OneCPU, r.OneWall = ms(cpu()-c0)/float64(rounds), ms(time.Since(t0))/float64(rounds)
	r.OneOps = float64(ops) / float64(rounds)
	c0, ops = cpu(), 0
	for b := range batches {
		n := min(100, c.n)
		for i := range n {
			a.mail.Put(sliceEvent(a.conv, c.change(i, 20_000+b*100+i)))
		}
		for n > 0 { // in one sync or several
			t, err := a.await()
			if err != nil {
				return err
			}
			ops += t.Operations
			n -= t.SliceEvents
		}
	}
	r.HundredCPU, r.HundredOps = ms(cpu()-c0)/float64(batches), float64(ops)/float64(batches)
	r.SteadyReads = a.reads() - before
	return nil
}

// restart starts a second agent on the state that the first left: the cluster is
// unchanged, so that there is nothing to write.
func restart(c *cluster, r *result) error {
	a, err := start(r.Mode)
	if err != nil {
		return err
	}
	making := c.makeAll()
	c0, t0 := cpu(), time.Now()
	t, err := a.load(c)
	if err != nil {
		return err
	}
	r.RestartCPU, r.RestartWall, r.RestartOps = ms(cpu()-c0-making), ms(time.Since(t0)), t.Operations
	r.AuditCPU = ms(t.Phases[2])
	return a.stop()
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
func mb(b uint64) float64        { return float64(b) / (1 << 20) }

func statusField(data []byte, field string) uint64 {
	for _, line := range strings.Split(string(data), "\n") {
		var kb uint64
		if rest, ok := strings.CutPrefix(line, field); ok {
			if _, err := fmt.Sscan(rest, &kb); err == nil {
				return kb << 10
			}
		}
	}
	return 0
}
