package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// The taint goes only after the first whole sync, failures are tried again with longer pauses and said once each, and success ends it.
func TestStartupTaintGoesAfterTheFirstSync(t *testing.T) {
	var out bytes.Buffer
	var pauses []time.Duration
	synced, asked := make(chan struct{}), 0
	answers := []error{errors.New("forbidden"), errors.New("forbidden"), errors.New("conflict"), nil}
	u := untaint{key: "a/b", synced: synced, log: logger{Logger: slog.New(slog.NewTextHandler(&out, nil))},
		remove: func(_ context.Context, key string) (bool, error) {
			select {
			case <-synced:
			default:
				t.Error("asked before the first sync")
			}
			if asked++; key != "a/b" || asked > len(answers) {
				t.Fatalf("asked %d times, about %s", asked, key)
			}
			return true, answers[asked-1]
		},
		pause: func(_ context.Context, d time.Duration) { pauses = append(pauses, d) }}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := u.run(ended); err != nil || asked != 0 {
		t.Fatalf("an agent that ends before its first sync asked %d times, %v", asked, err)
	}
	close(synced)
	if err := u.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}; !slices.Equal(pauses, want) || asked != 4 {
		t.Errorf("asked %d times with pauses %v", asked, pauses)
	}
	if said := out.String(); strings.Count(said, "forbidden") != 1 || strings.Count(said, "conflict") != 1 || strings.Count(said, "removed the start-up taint") != 1 {
		t.Errorf("said %s", said)
	}
}
