package kit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
)

// run is the run of one variant in one lab.
type run struct {
	v        Variant
	lab      *netlab.Lab
	subject  Subject
	mode     string
	restarts bool // a restart between any two steps
	patience time.Duration
	flows    map[string]*flow
	traffic  map[string]*traffic
	halted   bool // between `stop` and `start`
}

// flow stores which backend answered last. Only one expectation at a time uses it.
type flow struct {
	*netlab.Flow
	last string
}

// do runs every step. The first failure ends the scenario.
func (r *run) do(ctx context.Context) (err error) {
	steps, err := r.v.steps()
	if err != nil {
		return err
	}
	setup := Setup{Lab: r.lab, Mode: r.mode}
	for _, f := range r.v.Scenario.Flags {
		flag, err := r.v.expand("flags", f)
		if err != nil {
			return err
		}
		setup.Flags = append(setup.Flags, flag)
	}
	if setup.Files, err = r.v.baseFiles(); err != nil {
		return err
	}
	defer func() {
		r.close(slices.Collect(maps.Keys(r.flows)))
		r.close(slices.Collect(maps.Keys(r.traffic)))
		err = errors.Join(err, r.subject.Stop(context.WithoutCancel(ctx)))
	}()
	if err := r.subject.Start(ctx, setup); err != nil {
		return fmt.Errorf("start %s: %w", r.subject.Name(), err)
	}
	for i, s := range steps {
		if err := r.step(ctx, s); err != nil {
			return err
		}
		if r.restarts && i < len(steps)-1 && !r.halted {
			if err := r.subject.Restart(ctx, i%2 == 0); err != nil {
				return fmt.Errorf("restart after line %d: %w", s.line, err)
			}
		}
	}
	return r.audited(ctx)
}

func (r *run) step(ctx context.Context, s step) error {
	if err := r.act(ctx, s); err != nil {
		return fmt.Errorf("line %d: %s: %w", s.line, s.text, err)
	}
	errs := make([]error, len(s.expect))
	var wg sync.WaitGroup
	for i, e := range s.expect {
		wg.Go(func() {
			if err := await(ctx, r, e); err != nil {
				errs[i] = fmt.Errorf("after line %d (%s)\n      expected %s\n      but      %w", s.line, s.text, e, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, r.listable(ctx))...)
}

func (r *run) act(ctx context.Context, s step) error {
	switch s.verb {
	case "apply":
		return r.apply(ctx, s)
	case "send":
		return r.startTraffic(ctx, s)
	case "delete":
		return r.subject.Delete(ctx, s.args)
	case "restart":
		return r.subject.Restart(ctx, false)
	case "kill":
		return r.subject.Restart(ctx, true)
	case "stop":
		r.halted = true
		return r.subject.Halt(ctx)
	case "start":
		r.halted = false
		return r.subject.Resume(ctx)
	case "cleanup":
		return r.subject.Cleanup(ctx)
	case "run":
		return r.command(ctx, s)
	case "wait":
		return pause(ctx, s.rest)
	case "open":
		return r.open(ctx, s)
	case "close":
		r.close(s.args)
		return nil
	}
	return errBadLine
}

func (r *run) apply(ctx context.Context, s step) error {
	files, err := r.v.files(s.args)
	if err != nil {
		return err
	}
	return r.subject.Apply(ctx, files)
}

func pause(ctx context.Context, text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d > time.Minute {
		return fmt.Errorf("bad duration %q", text)
	}
	return sleep(ctx, d)
}

func (r *run) close(names []string) {
	for _, name := range names {
		if f, ok := r.flows[name]; ok {
			f.Close()
			delete(r.flows, name)
		}
		if t, ok := r.traffic[name]; ok {
			t.stop()
			delete(r.traffic, name)
		}
	}
}

// command runs `run HOST COMMAND...` through the shell.
func (r *run) command(ctx context.Context, s step) error {
	if len(s.args) < 2 {
		return errBadLine
	}
	h, err := r.lab.Host(s.args[0])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience.Of(commandTimeout))
	defer cancel()
	_, err = h.Run(ctx, "sh", "-c", s.rest[len(s.args[0]):])
	return err
}

// open reads `open NAME from HOST to ADDRESS:PORT [PROTOCOL]`.
func (r *run) open(ctx context.Context, s step) error {
	a := s.args
	if len(a) < 5 || a[1] != "from" || a[3] != "to" {
		return errBadLine
	}
	h, err := r.lab.Host(a[2])
	if err != nil {
		return err
	}
	to, err := parseAddr(a[4])
	if err != nil {
		return err
	}
	proto := netlab.Protocol(r.v.Proto)
	if len(a) == 6 {
		proto = netlab.Protocol(a[5])
	}
	ctx, cancel := context.WithTimeout(ctx, patience.Of(requestTimeout))
	defer cancel()
	f, err := h.Open(ctx, proto, to)
	if err == nil {
		r.flows[a[0]] = &flow{Flow: f}
	}
	return err
}

// listable checks after every step that the host's own nft can print the kernel's rules: other programs and people read them with it.
func (r *run) listable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(commandTimeout))
	defer cancel()
	if _, err := r.lab.Node().Run(ctx, "nft", "list", "ruleset"); err != nil {
		return fmt.Errorf("list the ruleset: %w", err)
	}
	return nil
}

// onNode reports whether the address belongs to node-a: its own, or the gateway address that its pods see.
func (r *run) onNode(ip netip.Addr) bool {
	gateway := netlab.Addrs{V4: netip.MustParseAddr("10.244.1.1"), V6: netip.MustParseAddr("fd00:10:244:1::1")}
	return slices.Contains([]netip.Addr{r.lab.Node().Addrs.Of(ip), gateway.Of(ip)}, ip)
}
