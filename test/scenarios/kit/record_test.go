package kit

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

// A variant that passed at this commit, or at one that counts as well, does not run again. One that failed, ran at another commit or was interrupted
// does.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	s, err := Parse("s", []byte("protocols: tcp udp sctp\napply a\n-- a --\n"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Scenarios: []*Scenario{s}, Modes: []string{"nftables"}}
	v := s.Variants()
	note := func(commit string, results ...Result) {
		t.Helper()
		r, err := OpenRecord(dir, commit)
		if err != nil {
			t.Fatal(err)
		}
		for _, res := range results {
			res.Mode = "nftables"
			if err := r.add(res); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	note("old", Result{Variant: v[0]}, Result{Variant: v[1]}, Result{Variant: v[2]})
	note("new", Result{Variant: v[1], Err: errors.New("lost")}, Result{Variant: v[2], Err: errors.New("lost")}, Result{Variant: v[3], NotApplicable: "no"})
	note("new", Result{Variant: v[2]})
	if err := os.WriteFile(filepath.Join(dir, "cut.jsonl"), []byte(`{"variant":"s/ipv6/udp","mode":"nft`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		also, todo             []string
		passed, failed, notFor int
	}{
		{nil, []string{"s/ipv4/tcp", "s/ipv4/udp", "s/ipv6/udp", "s/ipv6/sctp"}, 1, 1, 1},
		{[]string{"old"}, []string{"s/ipv4/udp", "s/ipv6/udp", "s/ipv6/sctp"}, 2, 1, 1},
	} {
		r, err := OpenRecord(dir, "new", c.also...)
		if err != nil {
			t.Fatal(err)
		}
		results, todo := r.Known(cfg)
		got := map[string]int{}
		for _, res := range results {
			switch {
			case res.Passed():
				got["passed"]++
			case res.Err != nil:
				got["failed"]++
			default:
				got["not"]++
			}
		}
		if !slices.Equal(todo, c.todo) || got["passed"] != c.passed || got["failed"] != c.failed || got["not"] != c.notFor {
			t.Errorf("with %v: to do %v, %v; want %v", c.also, todo, got, c)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The absence of an answer is accepted only if a direct request at the same time was fast enough.
func TestSilenceOfABusyMachine(t *testing.T) {
	lags := []time.Duration{time.Millisecond, 30 * time.Millisecond, 5 * time.Millisecond}
	asked := 0
	believed(t.Context(), 10*time.Millisecond, func(context.Context) time.Duration {
		next := lags[0]
		lags = lags[1:]
		return next
	}, func(ctx context.Context) netlab.Reply {
		asked++
		<-ctx.Done()
		return netlab.Reply{Outcome: netlab.TimedOut}
	})
	if asked != 2 || len(lags) != 0 {
		t.Errorf("asked %d times, want again after a slow look and not after a fast one; lags left %v", asked, lags)
	}
}
