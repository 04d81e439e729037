package kit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
)

// Bounds of one expectation. A request that should be answered may take requestTimeout. The absence of an answer is accepted after quietTimeout, but
// for TCP only after requestTimeout: the kernel drops an ICMP reject that arrives while connect still owns the socket, and repeats the SYN after a
// second.
const (
	pollFor        = time.Minute
	pollEvery      = 20 * time.Millisecond
	requestTimeout = 1500 * time.Millisecond
	quietTimeout   = 600 * time.Millisecond
	commandTimeout = 30 * time.Second
)

// expectation is a check that is repeated until it succeeds, for at most pollFor.
type expectation interface {
	check(ctx context.Context, r *run) error
	String() string
}

// flowExpectation sends a request over a flow that was opened earlier: the same connection, or the same UDP source port.
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
	rep := e.answer.ask(ctx, r, quietTimeout, f.Ask)
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
	return e.answer.quiet(rep, r)
}

// metricExpectation compares the sum of the samples of one metric.
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

// logExpectation requires (or forbids) a line in the agent's log that contains all the words.
type logExpectation struct {
	text  string
	lacks bool
	words []string
}

func (e *logExpectation) String() string { return e.text }

func (e *logExpectation) check(_ context.Context, r *run) error {
	return findLine(r.subject.Log(), e.words, e.lacks)
}

// printsExpectation runs a command on a host and checks its output.
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
	ctx, cancel := context.WithTimeout(ctx, patience.Of(commandTimeout))
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

// permanent marks an error that a retry cannot fix.
type permanent struct{ error }

// unfinished marks an error that only reports that more is to come. The speed is no part of the expectation, so only the scenario's own limit ends
// the wait.
type unfinished struct{ error }

// await retries one expectation until it holds.
func await(ctx context.Context, r *run, e expectation) error {
	deadline := time.Now().Add(r.patience)
	for {
		err := e.check(ctx, r)
		var final permanent
		var more unfinished
		late := time.Now().After(deadline) && !errors.As(err, &more)
		if err == nil || errors.As(err, &final) || ctx.Err() != nil || late {
			return err
		}
		if sleep(ctx, patience.Pause(pollEvery)) != nil {
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
