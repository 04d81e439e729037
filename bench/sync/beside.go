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

// tries is the number of measurements: audits without a concurrent change; and pairs of a change alone and a change concurrent with
// an audit.
type tries struct{ audits, pairs int }

// audit is one kind of audit on demand. The kinds alternate, because the next audit of a kind must wait.
type audit struct {
	path string
	next time.Time
}

func bothAudits() []*audit { return []*audit{{path: "/audit?repair=false"}, {path: "/audit"}} }

// wait waits until the next audit of this kind is allowed.
func (a *audit) wait() { time.Sleep(time.Until(a.next)) } // the agent returned the time

// do requests an audit, which must find everything in sync. The changes of the pairs are applied concurrently.
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

// beside measures audits, changes alone, and changes concurrent with an audit. They alternate, so that other work of the machine
// affects both alike.
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
		if _, err := c.change(ctx); err != nil { // not counted: so each counted change follows another one at the same distance
			return err
		}
		delay := typical * time.Duration(i) / time.Duration(of.pairs) // spread, so that a change meets each part of an audit
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

// restBefore is longer than the engine delays a change after the previous one.
const restBefore = engine.MaxPause + engine.MaxPause/4

// afterRest adds a sample that contains neither the pause after the last change nor the cleanup of that change.
func (r *row) afterRest(pid int, do func() (time.Duration, error)) error {
	time.Sleep(restBefore) // the measurement begins after it
	return r.sample(pid, do)
}

// changeBeside makes a change at the given delay after the request for an audit.
func (c *commands) changeBeside(ctx context.Context, a *audit, delay time.Duration) (took time.Duration, err error) {
	done := make(chan error, 1) // size 1: its only message
	go func() { done <- a.do(ctx) }()
	time.Sleep(delay) // the change starts at this distance from the start of the audit
	took, err = c.change(ctx)
	return took, errors.Join(err, <-done)
}

// look is the interval of the check whether a change is in the kernel. It is long, because each check costs the agent time too.
const look = 10 * time.Millisecond

// change adds an endpoint to the first Service, and returns how long it took until it was in the kernel, as the agent reports
// afterwards.
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
		time.Sleep(look) // bounded poll: the agent sends no notification
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
