package kit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

// fromExpectation sends new requests, each from its own source port.
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
	var replies []netlab.Reply
	err = e.asked(ctx, r, func() netlab.Reply {
		rep := e.answer.ask(ctx, r, e.answer.timeout(e.proto), func(ctx context.Context) netlab.Reply { return h.Ask(ctx, e.proto, e.to) })
		if e.answer.kind == "refused" {
			rep.Outcome = r.refusal(e.proto, e.to.Addr(), rep.Outcome)
		}
		replies = append(replies, rep)
		return rep
	})
	if err != nil {
		return err
	}
	return e.explained(ctx, r, replies)
}

// asked sends as many requests as the kind of answer requires.
func (e *fromExpectation) asked(ctx context.Context, r *run, ask func() netlab.Reply) error {
	switch e.answer.kind {
	case "backends", "backend":
		return e.spread(ask, r)
	case "same":
		return e.same(ask, r)
	case "shares":
		return e.shares(ask, r)
	case "changes":
		return e.changes(ctx, ask)
	case "timeout", "fails", "untaken":
		return e.answer.quiet(ask(), r)
	}
	for range 3 { // a refusal must be stable
		if err := e.answer.quiet(ask(), r); err != nil {
			return err
		}
	}
	return nil
}

// spread sends 12 requests for each named backend, at least 24: one of the named backends must answer each, and each backend must answer at least
// once. (By chance, one of three backends gets no request once in 700 000 times; a superfluous one gets none once in 30 000.) If a backend is missing
// after that, spread sends as many again, with random pauses: two hosts that send requests concurrently can alternate so evenly that a round robin
// always selects the same backend for each of them. On a machine with one processor that counts instructions this went on for fifty seconds.
func (e *fromExpectation) spread(ask func() netlab.Reply, r *run) error {
	missing := slices.Clone(e.answer.backends)
	requests := max(24, 12*len(missing))
	for n := range 2 * requests {
		if n >= requests {
			if len(missing) == 0 {
				return nil
			}
			time.Sleep(rand.N(2 * evenTurns)) // breaks the alternation; there are at most as many pauses as requests
		}
		rep := ask()
		if err := e.answer.matches(rep, r); err != nil {
			return fmt.Errorf("request %d: %w", n+1, err)
		}
		named := fmt.Sprintf("%s:%d", rep.Backend, rep.Port)
		missing = slices.DeleteFunc(missing, func(b string) bool { return b == rep.Backend || b == named })
	}
	if len(missing) > 0 {
		return fmt.Errorf("no answer from %s in %d requests", strings.Join(missing, " "), 2*requests)
	}
	return nil
}

// evenTurns is the mean of these pauses: several requests, and several timer ticks of a slow machine.
const evenTurns = 10 * time.Millisecond

// same accepts one change of the backend, because an earlier change may take effect between two requests. More retries would prove nothing: in the
// end they succeed by chance.
func (e *fromExpectation) same(ask func() netlab.Reply, r *run) error {
	backend, restarted := "", false
	for n := 0; n < e.answer.tries; n++ {
		rep := ask()
		if err := e.answer.matches(rep, r); err != nil {
			return fmt.Errorf("request %d: %w", n+1, err)
		}
		switch {
		case backend == rep.Backend:
		case n == 0:
			backend = rep.Backend
		case restarted:
			return permanent{fmt.Errorf("request %d: %s answered, %s before", n+1, rep.Backend, backend)}
		default:
			backend, restarted, n = rep.Backend, true, 0
		}
	}
	return nil
}

// shares counts the answers of each backend. The tolerance is 8 points: at 400 requests that is three and a half standard deviations of the worst
// case, which chance exceeds once in two thousand expectations. So if a share is out of bounds, the count continues to four times as many requests,
// where chance never exceeds it.
func (e *fromExpectation) shares(ask func() netlab.Reply, r *run) error {
	counts := map[string]int{}
	var err error
	for n := 1; n <= 4*e.answer.tries; n++ {
		rep := ask()
		if err := e.answer.matches(rep, r); err != nil {
			return err
		}
		counts[rep.Backend]++
		if n == e.answer.tries || n == 4*e.answer.tries {
			if err = e.uneven(counts, n); err == nil {
				return nil
			}
		}
	}
	return permanent{err}
}

func (e *fromExpectation) uneven(counts map[string]int, requests int) error {
	for i, name := range e.answer.backends {
		got := 100 * float64(counts[name]) / float64(requests)
		if want := e.answer.shares[i]; got < want-8 || got > want+8 {
			return fmt.Errorf("%s answered %.0f %% of %d requests, want %.0f %%", name, got, requests, want)
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
