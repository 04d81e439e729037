package ipvs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Watch implements dataplane.Driver. IPVS and the device tell nobody of changes, so the engine is rung for
// them by the clock, and Changed compares.
func (d *Driver) Watch(ctx context.Context, changed func()) error {
	ctx, stop := context.WithCancel(ctx)
	audits := make(chan struct{})
	go func() {
		defer close(audits)
		d.audits(ctx, changed)
	}()
	defer func() {
		stop()
		<-audits
		d.seen.Unwatched()
	}()
	err := d.p.NFT.Watch(ctx, func(m nft.Move) {
		if d.seen.Hear(m.Generation, !m.Lost && !slices.ContainsFunc(m.Tables, isOurs)) {
			changed()
		}
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("watch rule set: %w", err)
	}
	return nil
}

func isOurs(t nft.TableRef) bool { return t == tableRef(model.IPv4) || t == tableRef(model.IPv6) }

func (d *Driver) audits(ctx context.Context, changed func()) {
	if d.p.Audit <= 0 {
		return
	}
	tick := time.NewTicker(d.p.Audit)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			changed()
		}
	}
}

// Changed implements dataplane.Driver: of IPVS it reads everything, sums that up, and compares the sum.
func (d *Driver) Changed(ctx context.Context) (bool, error) {
	g, err := d.p.NFT.Generation(ctx)
	if err != nil {
		return false, err
	}
	if d.unsure || !d.seen.Settled(ctx, g) {
		return true, nil
	}
	r := reader{d: d, families: d.families}
	if err := r.owned(ctx); err != nil {
		return false, err
	}
	if err := r.all(ctx); err != nil {
		return false, err
	}
	return r.sum != d.sum, nil
}
