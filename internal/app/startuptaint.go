package app

import (
	"context"
	"time"
)

// The pauses between attempts to take the start-up taint away.
const (
	taintPause   = time.Second
	taintLongest = 30 * time.Second
)

// untaint removes the start-up taint from the agent's Node once the whole desired state has been in the kernel: pods
// that are kept away by it then find Services that work (#75890). It is done once: a taint that is set later is intended.
type untaint struct {
	key    string
	synced <-chan struct{}
	remove func(ctx context.Context, key string) (bool, error)
	pause  func(ctx context.Context, d time.Duration)
	log    logger
}

func (u *untaint) run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-u.synced:
	}
	said := ""
	for wait := taintPause; ctx.Err() == nil; wait = min(2*wait, taintLongest) {
		was, err := u.remove(ctx, u.key)
		if err == nil {
			if was {
				u.log.Info("removed the start-up taint from the node", "taint", u.key)
			}
			return nil
		}
		if text := err.Error(); text != said && ctx.Err() == nil {
			u.log.Warn("cannot remove the start-up taint from the node; trying again", "taint", u.key, "error", text)
			said = text
		}
		u.pause(ctx, wait)
	}
	return nil
}

// pauseFor waits, or until ctx ends.
func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
