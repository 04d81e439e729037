package takeover

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/nft"
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
	b.says(&log, "cannot remove rules that another proxy left; trying again")
	b.says(&log, "removed rules that another proxy left")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if left := b.sh("iptables-legacy-save"); strings.Contains(left, "KUBE-SERVICES") {
		t.Errorf("left: %s", left)
	}
}

// beside is a kernel in which somebody else writes before our next commits.
type beside struct {
	nft.Kernel
	writes int
}

func (k *beside) Commit(ctx context.Context, b *nft.Batch) (nft.Generation, error) {
	if k.writes--; k.writes >= 0 {
		return 0, nft.ErrGeneration
	}
	return k.Kernel.Commit(ctx, b)
}

// TestEmptyTablesGoBesideWrites: tables of iptables that hold nothing any more go although somebody writes meanwhile.
func TestEmptyTablesGoBesideWrites(t *testing.T) {
	b := newBed(t)
	b.sh("iptables-nft -t nat -N KUBE-SERVICES")
	b.k.NFT = &beside{b.k.NFT, 3}
	b.remove(KubeProxy)
	if left := b.sh("nft list tables"); left != "" {
		t.Errorf("left: %s", left)
	}
}
