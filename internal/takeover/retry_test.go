package takeover

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
)

// TestRemovalIsTriedAgain: who holds the lock of iptables for long does not keep the old proxy's rules for good.
func TestRemovalIsTriedAgain(t *testing.T) {
	b := newBed(t)
	b.sh("iptables-legacy -t nat -N KUBE-SERVICES")
	remove, refusals := b.k.Planes.RemoveChains, 2
	b.k.Planes.RemoveChains = func(ctx context.Context, k kernel.Kernel, owner string) error {
		if refusals--; refusals >= 0 {
			return errors.New("somebody holds the lock")
		}
		return remove(ctx, k, owner)
	}
	var log buffer
	inKernel := make(chan struct{})
	close(inKernel)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	p := Params{Kernels: b.k, Own: NFTables, InKernel: inKernel, Verify: verified, Log: slog.New(slog.NewTextHandler(&log, nil)), Looks: []time.Duration{10 * time.Millisecond}}
	go func() { done <- b.ns.Do(func() error { return Run(ctx, p) }) }()
	b.says(&log, "cannot remove what another proxy left; trying again")
	b.says(&log, "removed what another proxy left")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if left := b.sh("iptables-legacy-save"); strings.Contains(left, "KUBE-SERVICES") {
		t.Errorf("left: %s", left)
	}
}
