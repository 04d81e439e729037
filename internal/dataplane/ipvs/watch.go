package ipvs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Watch implements dataplane.Driver. IPVS and the device do not notify of changes, so Watch reads them at the interval Params.Audit,
// concurrently with the engine. If they differ from the synced state it calls changed, and the engine compares again with Changed.
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
			if d.strayed(ctx) {
				changed()
			}
		}
	}
}

// straying is how often a read that a concurrent write of the Driver has invalidated is retried, and strayPause is the pause before each retry.
const (
	straying   = 5
	strayPause = time.Second
)

// strayed reports whether IPVS or the device differ from the synced state. It also returns true if this cannot be determined, because the
// Driver writes all the time or a read fails; the engine compares again then.
func (d *Driver) strayed(ctx context.Context) bool {
	for range straying {
		before := d.writes.Load()
		found, err := d.sumBeside(ctx)
		ours := d.sum.Load()
		switch {
		case err != nil:
			return ctx.Err() == nil
		case before%2 == 0 && d.writes.Load() == before:
			return found != ours
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(strayPause):
		}
	}
	return true
}

func (d *Driver) sumBeside(ctx context.Context) (uint64, error) {
	r, done, err := d.beside(nil)
	if err != nil {
		return 0, err
	}
	defer done()
	if r.at, err = r.from.NFT.Generation(ctx); err != nil {
		return 0, err
	}
	err = r.servers(ctx)
	return r.sum, err
}

// Changed implements dataplane.Driver. It reads all of IPVS and compares the sum with that of the synced state.
func (d *Driver) Changed(ctx context.Context) (bool, error) {
	g, err := d.p.NFT.Generation(ctx)
	if err != nil {
		return false, err
	}
	if d.unsure || !d.seen.Settled(ctx, g) {
		return true, nil
	}
	r := d.reader(nil)
	r.at = g
	err = r.servers(ctx)
	return err == nil && r.sum != d.sum.Load(), err
}

// servers reads only the device and the servers.
func (r *reader) servers(ctx context.Context) error {
	if err := r.owned(ctx); err != nil {
		return err
	}
	return r.all(ctx)
}
