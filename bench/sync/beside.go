package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/inspect"
)

// tries says how often each is measured: audits with no change beside them; changes alone, and as many beside an audit.
type tries struct{ audits, pairs int }

// audit is one on demand. The sorts take turns, for the next of a sort must wait.
type audit struct {
	path string
	next time.Time
}

func bothAudits() []*audit { return []*audit{{path: "/audit?repair=false"}, {path: "/audit"}} }

// wait waits until the next may come.
func (a *audit) wait() { time.Sleep(time.Until(a.next)) } // the agent named the time

// do asks for one, which must find all as it should be. The pairs' changes go in meanwhile.
func (a *audit) do(ctx context.Context) error {
	var got inspect.Audit
	if err := ask(ctx, a.path, &got); err != nil {
		return err
	}
	a.next = got.Next
	if !got.Clean() || got.Objects == 0 || got.Repeated {
		return fmt.Errorf("%+v", got)
	}
	return nil
}

// beside measures audits, and changes alone and beside them: by turns, so that whatever else the machine does falls on both alike.
func (c *commands) beside(ctx context.Context, of tries, out io.Writer) error {
	both := bothAudits()
	audits, alone, beside := row{what: "audit", goal: "300"}, row{what: "a change, alone"}, row{what: "a change, while an audit reads"}
	for i := range of.audits {
		a := both[i%len(both)]
		a.wait()
		if err := audits.sample(c.pid, func() (time.Duration, error) {
			t0 := time.Now()
			err := a.do(ctx)
			return time.Since(t0), err
		}); err != nil {
			return err
		}
	}
	typical := slices.Min(audits.took)
	for i := range of.pairs {
		a := both[i%len(both)]
		a.wait()
		if _, err := c.change(ctx); err != nil { // not counted: each one that is comes as long after another
			return err
		}
		delay := typical * time.Duration(i) / time.Duration(of.pairs) // so that each part of an audit meets one
		one := func() error { return alone.afterRest(c.pid, func() (time.Duration, error) { return c.change(ctx) }) }
		two := func() error {
			return beside.afterRest(c.pid, func() (time.Duration, error) { return c.changeBeside(ctx, a, delay) })
		}
		if i%2 == 1 {
			one, two = two, one
		}
		for _, measure := range []func() error{one, two} {
			if err := measure(); err != nil {
				return err
			}
		}
	}
	for _, r := range []row{audits, alone, beside} {
		if err := r.print(out); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%-34s a change takes from its file until it is in the kernel; the last row's CPU has the audit's in it\n", "")
	return err
}

// restBefore is more than the engine makes a change wait for the one before it.
const restBefore = engine.MaxPause + engine.MaxPause/4

// afterRest adds a try to which neither the pause after the last change nor what that left to clean up adds anything.
func (r *row) afterRest(pid int, do func() (time.Duration, error)) error {
	time.Sleep(restBefore) // what is measured begins after it
	return r.sample(pid, do)
}

// changeBeside makes a change some time after an audit was asked for.
func (c *commands) changeBeside(ctx context.Context, a *audit, delay time.Duration) (took time.Duration, err error) {
	done := make(chan error, 1) // size 1: its only message
	go func() { done <- a.do(ctx) }()
	time.Sleep(delay) // so long after the audit began the change is to come
	took, err = c.change(ctx)
	return took, errors.Join(err, <-done)
}

// look is how often it is looked whether a change is in the kernel: rarely, for that costs the agent time too.
const look = 10 * time.Millisecond

// change adds an endpoint to the first Service, and gives how long it took until it was in the kernel, as the agent tells afterwards.
func (c *commands) change(ctx context.Context) (time.Duration, error) {
	c.more++
	if err := c.prepare(0); err != nil {
		return 0, err
	}
	t0 := time.Now()
	if err := c.publish(0); err != nil {
		return 0, err
	}
	for ctx.Err() == nil {
		time.Sleep(look) // bounded poll: the agent tells nobody
		var s inspect.Status
		if err := ask(ctx, "/status", &s); err != nil {
			return 0, err
		}
		if !s.Kernel.Synced.After(t0) {
			continue
		}
		var e inspect.Explanation
		if err := c.explain(ctx, 0, &e); err != nil {
			return 0, err
		}
		if len(e.Endpoints)+e.More == c.e+c.more && e.Kernel.Pending == 0 {
			return s.Kernel.Synced.Sub(t0), nil
		}
	}
	return 0, ctx.Err()
}
