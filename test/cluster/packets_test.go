package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

const (
	answerTimeout = time.Second
	// A TCP client on a veth ignores an ICMP error that arrives inside its own connect(), and handles the one for the
	// retransmitted SYN a second later.
	refusalTimeout = 3 * time.Second
	silence        = 400 * time.Millisecond
)

// ask sends one request from the outside client.
func (e *env) ask(ctx context.Context, f frontend, limit time.Duration) netlab.Reply {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return e.lab.Client().Ask(ctx, f.proto, f.addr)
}

// reach checks that all of these pods answer through each frontend, on this port, and that no other pod does. With 12
// requests for each pod one of three stays unseen once in a million times; then the caller's eventually retries.
func (e *env) reach(all []frontend, port uint16, pods ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, f := range all {
			got := map[string]bool{}
			for range 12 * len(pods) {
				r := e.ask(ctx, f, answerTimeout)
				switch {
				case r.Outcome != netlab.Answered:
					return fmt.Errorf("ask %s %s: %s (%v)", f.addr, f.proto, r.Outcome, r.Err)
				case !slices.Contains(pods, r.Backend) || r.Port != port:
					return fmt.Errorf("ask %s %s: answered by %s, want port %d of %v", f.addr, f.proto, r, port, pods)
				}
				got[r.Backend] = true
			}
			if len(got) != len(pods) {
				return fmt.Errorf("ask %s %s: only %v answer, want %v", f.addr, f.proto, slices.Sorted(maps.Keys(got)), pods)
			}
		}
		return nil
	}
}

// refused checks that each frontend rejects clients at once, instead of letting them wait.
func (e *env) refused(all []frontend) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, f := range all {
			if r := e.ask(ctx, f, refusalTimeout); r.Outcome != netlab.Refused {
				return fmt.Errorf("ask %s %s: %s, want refused", f.addr, f.proto, r)
			}
		}
		return nil
	}
}

// silent checks that no answer arrives any more.
func (e *env) silent(all []frontend) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, f := range all {
			if r := e.ask(ctx, f, silence); r.Outcome == netlab.Answered {
				return fmt.Errorf("ask %s %s: still answered by %s", f.addr, f.proto, r)
			}
		}
		return nil
	}
}
