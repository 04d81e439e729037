package kit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

// Bounds of one expectation. A request that should be answered may take requestTimeout; one that should not is believed after quietTimeout,
// but for TCP only after requestTimeout: an ICMP reject that arrives while connect still owns the socket is lost, and the SYN is repeated
// after a second.
const (
	pollFor        = 5 * time.Second
	pollEvery      = 20 * time.Millisecond
	requestTimeout = 1500 * time.Millisecond
	quietTimeout   = 600 * time.Millisecond
	commandTimeout = 10 * time.Second
)

// expectation is asked until it holds, at most pollFor.
type expectation interface {
	check(ctx context.Context, r *run) error
	String() string
}

// answer is what a request must meet.
type answer struct {
	kind     string    // backends, backend, same, shares, changes, refused, timeout, unreachable, reset, closed, fails
	backends []string  // names, or name:port
	source   string    // "", preserved, masqueraded, or an address
	shares   []float64 // per cent, in the order of backends
	tries    int
	pause    time.Duration
}

// matches checks one answered reply.
func (a answer) matches(rep netlab.Reply, r *run) error {
	if rep.Outcome != netlab.Answered {
		return fmt.Errorf("%s (%v)", rep.Outcome, rep.Err)
	}
	named := fmt.Sprintf("%s:%d", rep.Backend, rep.Port)
	if len(a.backends) > 0 && !slices.Contains(a.backends, rep.Backend) && !slices.Contains(a.backends, named) {
		return fmt.Errorf("%s answered, want only %s", named, strings.Join(a.backends, " "))
	}
	switch a.source {
	case "":
		return nil
	case "preserved":
		if !rep.Preserved() {
			return fmt.Errorf("%s saw %s, want the client's own %s", rep.Backend, rep.Source.Addr(), rep.Own)
		}
	case "masqueraded":
		// Asked from the node itself, masquerading may choose the address that was there before.
		if rep.Preserved() && !r.onNode(rep.Own) || !r.onNode(rep.Source.Addr()) {
			return fmt.Errorf("%s saw %s (client %s), want an address of node-a", rep.Backend, rep.Source.Addr(), rep.Own)
		}
	default:
		if want, err := netip.ParseAddr(a.source); err != nil || rep.Source.Addr() != want {
			return fmt.Errorf("%s saw %s, want %s", rep.Backend, rep.Source.Addr(), a.source)
		}
	}
	return nil
}

// quiet checks a reply that must be a failure.
func (a answer) quiet(rep netlab.Reply) error {
	if rep.Outcome == netlab.Answered {
		return fmt.Errorf("%s, want %s", rep, a.kind)
	}
	if a.kind != "fails" && string(rep.Outcome) != a.kind {
		return fmt.Errorf("%s (%v), want %s", rep.Outcome, rep.Err, a.kind)
	}
	return nil
}

func (a answer) timeout(proto netlab.Protocol) time.Duration {
	if (a.kind == "timeout" || a.kind == "fails") && proto != netlab.TCP {
		return quietTimeout
	}
	return requestTimeout
}

// fromExpectation makes fresh requests, each from a source port of its own.
type fromExpectation struct {
	text, host string
	to         netip.AddrPort
	proto      netlab.Protocol
	answer     answer
}

func (e *fromExpectation) String() string { return e.text + " [" + e.host + "]" }

func (e *fromExpectation) check(ctx context.Context, r *run) error {
	h, err := r.lab.Host(e.host)
	if err != nil {
		return err
	}
	ask := func() netlab.Reply {
		ctx, cancel := context.WithTimeout(ctx, e.answer.timeout(e.proto))
		defer cancel()
		return h.Ask(ctx, e.proto, e.to)
	}
	switch e.answer.kind {
	case "backends", "backend":
		return e.spread(ask, r)
	case "same":
		return e.same(ask, r)
	case "shares":
		return e.shares(ask, r)
	case "changes":
		return e.changes(ctx, ask)
	case "timeout", "fails":
		return e.answer.quiet(ask())
	}
	for range 3 { // a refusal must be steady
		if err := e.answer.quiet(ask()); err != nil {
			return err
		}
	}
	return nil
}

// spread makes 12 requests for each named backend, at least 24: each must be answered by one of them, and each of them must answer.
// (Of three backends one stays unseen by chance once in 700 000 times; one too many stays unseen once in 30 000.)
func (e *fromExpectation) spread(ask func() netlab.Reply, r *run) error {
	missing := slices.Clone(e.answer.backends)
	requests := max(24, 12*len(missing))
	for n := range requests {
		rep := ask()
		if err := e.answer.matches(rep, r); err != nil {
			return fmt.Errorf("request %d: %w", n+1, err)
		}
		named := fmt.Sprintf("%s:%d", rep.Backend, rep.Port)
		missing = slices.DeleteFunc(missing, func(b string) bool { return b == rep.Backend || b == named })
	}
	if len(missing) > 0 {
		return fmt.Errorf("no answer from %s in %d requests", strings.Join(missing, " "), requests)
	}
	return nil
}

func (e *fromExpectation) same(ask func() netlab.Reply, r *run) error {
	first := ""
	for n := 1; n <= e.answer.tries; n++ {
		rep := ask()
		if err := e.answer.matches(rep, r); err != nil {
			return fmt.Errorf("request %d: %w", n, err)
		}
		if first == "" {
			first = rep.Backend
		}
		if rep.Backend != first {
			// Trying again until chance is kind would prove nothing.
			return permanent{fmt.Errorf("request %d: %s answered, %s before", n, rep.Backend, first)}
		}
	}
	return nil
}

// shares counts who answers. The tolerance is 8 points: at 400 requests, three and a half standard deviations of the worst case.
func (e *fromExpectation) shares(ask func() netlab.Reply, r *run) error {
	counts := map[string]int{}
	for range e.answer.tries {
		rep := ask()
		if err := e.answer.matches(rep, r); err != nil {
			return err
		}
		counts[rep.Backend]++
	}
	for i, name := range e.answer.backends {
		got := 100 * float64(counts[name]) / float64(e.answer.tries)
		if want := e.answer.shares[i]; got < want-8 || got > want+8 {
			return permanent{fmt.Errorf("%s answered %.0f %% of %d requests, want %.0f %%", name, got, e.answer.tries, want)}
		}
	}
	return nil
}

func (e *fromExpectation) changes(ctx context.Context, ask func() netlab.Reply) error {
	seen := map[string]bool{}
	for range e.answer.tries {
		rep := ask()
		if rep.Outcome != netlab.Answered {
			return fmt.Errorf("%s (%v)", rep.Outcome, rep.Err)
		}
		if seen[rep.Backend] = true; len(seen) > 1 {
			return nil
		}
		if err := sleep(ctx, e.answer.pause); err != nil {
			return err
		}
	}
	return fmt.Errorf("the same backend answered %d times", e.answer.tries)
}

// flowExpectation asks over a flow opened earlier: the same connection, or the same UDP source port.
type flowExpectation struct {
	text, name string
	answer     answer
}

func (e *flowExpectation) String() string { return e.text }

func (e *flowExpectation) check(ctx context.Context, r *run) error {
	f, ok := r.flows[e.name]
	if !ok {
		return permanent{fmt.Errorf("no flow %q is open", e.name)}
	}
	ctx, cancel := context.WithTimeout(ctx, quietTimeout)
	defer cancel()
	rep := f.Ask(ctx)
	switch e.answer.kind {
	case "backend", "backends":
		if err := e.answer.matches(rep, r); err != nil {
			return err
		}
		f.last = rep.Backend
		return nil
	case "same":
		if rep.Outcome != netlab.Answered {
			return fmt.Errorf("%s (%v), want %s as before", rep.Outcome, rep.Err, f.last)
		}
		if f.last != "" && rep.Backend != f.last {
			return permanent{fmt.Errorf("%s answered, %s before", rep.Backend, f.last)}
		}
		f.last = rep.Backend
		return nil
	}
	return e.answer.quiet(rep)
}

// metricExpectation sums the samples of one metric.
type metricExpectation struct {
	text, name, op string
	value          float64
}

func (e *metricExpectation) String() string { return e.text }

func (e *metricExpectation) check(ctx context.Context, r *run) error {
	got, err := Metric(ctx, r.lab.Node(), e.name)
	if err != nil {
		return err
	}
	ok := map[string]bool{"=": got == e.value, ">=": got >= e.value, ">": got > e.value, "<": got < e.value, "<=": got <= e.value}[e.op]
	if !ok {
		return fmt.Errorf("%s is %s, want %s %s", e.name, strconv.FormatFloat(got, 'g', -1, 64), e.op, strconv.FormatFloat(e.value, 'g', -1, 64))
	}
	return nil
}

// logExpectation wants (or does not want) one line of the agent's log that holds all the words.
type logExpectation struct {
	text  string
	lacks bool
	words []string
}

func (e *logExpectation) String() string { return e.text }

func (e *logExpectation) check(_ context.Context, r *run) error {
	return findLine(r.subject.Log(), e.words, e.lacks)
}

// printsExpectation runs a command on a host and looks at what it prints.
type printsExpectation struct {
	text, host, command string
	lacks               bool
	words               []string
}

func (e *printsExpectation) String() string { return e.text }

func (e *printsExpectation) check(ctx context.Context, r *run) error {
	h, err := r.lab.Host(e.host)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := h.Run(ctx, "sh", "-c", e.command)
	if err != nil {
		return err
	}
	return findLine(out, e.words, e.lacks)
}

func findLine(text string, words []string, lacks bool) error {
	for line := range strings.Lines(text) {
		all := !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
		if all && lacks {
			return fmt.Errorf("there is a line with %q: %s", words, strings.TrimSpace(line))
		}
		if all {
			return nil
		}
	}
	if lacks {
		return nil
	}
	return fmt.Errorf("no line holds all of %q", words)
}

// permanent marks an error that waiting does not cure.
type permanent struct{ error }

// await polls one expectation.
func await(ctx context.Context, r *run, e expectation) error {
	deadline := time.Now().Add(r.patience)
	for {
		err := e.check(ctx, r)
		var final permanent
		if err == nil || errors.As(err, &final) || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		if sleep(ctx, pollEvery) != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
