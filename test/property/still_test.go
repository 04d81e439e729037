package property

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/test/patience"
)

// still reads a kernel while an agent may write. A read that a commit interrupts returns
// what it has read so far and sets broken.
type still struct {
	nft.Kernel
	broken *bool
}

// stillLooks is how often one snapshot is retried.
const stillLooks = 500

// whileStill repeats a read until no commit happened during it: a half-applied change is
// never a desired state.
func whileStill(t *testing.T, k nft.Kernel, look func(nft.Kernel)) {
	t.Helper()
	for range stillLooks {
		before, err := k.Generation(t.Context())
		check(t, err)
		broken := false
		look(still{k, &broken})
		after, err := k.Generation(t.Context())
		check(t, err)
		if before == after && !broken {
			return
		}
		time.Sleep(patience.Pause(10 * time.Millisecond)) // no condition to wait for: the agent must become idle
	}
	t.Fatalf("somebody writes all the time, %d looks long", stillLooks)
}

// pass records an error that a concurrent commit explains.
func (s still) pass(err error) error {
	if errors.Is(err, nft.ErrInterrupted) || errors.Is(err, syscall.ENOENT) {
		*s.broken = true
		return nil
	}
	return err
}

func (s still) Tables(ctx context.Context) ([]nft.Table, error) {
	list, err := s.Kernel.Tables(ctx)
	return list, s.pass(err)
}

func (s still) Sets(ctx context.Context, t nft.TableRef) ([]nft.Set, error) {
	list, err := s.Kernel.Sets(ctx, t)
	return list, s.pass(err)
}

func (s still) Chains(ctx context.Context, t nft.TableRef) ([]nft.Chain, error) {
	list, err := s.Kernel.Chains(ctx, t)
	return list, s.pass(err)
}

func (s still) Rules(ctx context.Context, t nft.TableRef) ([]nft.Rule, error) {
	list, err := s.Kernel.Rules(ctx, t)
	return list, s.pass(err)
}

func (s still) Elements(ctx context.Context, set nft.SetRef, emit func(*nft.Element) error) error {
	return s.pass(s.Kernel.Elements(ctx, set, emit))
}
