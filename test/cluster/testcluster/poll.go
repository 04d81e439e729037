package testcluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// fatal ends a poll at once.
type fatal struct{ error }

// poll retries fn until it succeeds or ctx ends, and returns the last error of fn.
func poll(ctx context.Context, fn func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := fn()
		var f *fatal
		if err == nil || errors.As(err, &f) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

func firstOf(list string) string {
	first, _, _ := strings.Cut(list, ",")
	return first
}
