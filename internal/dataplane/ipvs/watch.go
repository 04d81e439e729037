package ipvs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Watch implements dataplane.Driver. IPVS and the device tell nobody of changes, so they are read by the clock, beside
// the engine. It is rung where they are not as we left them, and Changed compares once more.
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

// straying bounds how often what a write of ours spoilt is read again, and strayPause comes before.
const (
	straying   = 5
	strayPause = time.Second
)

// strayed reports whether IPVS or the device are not as we left them, or that it cannot be told: we write all the time, or
// they cannot be read. The engine finds out then.
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

// Changed implements dataplane.Driver: of IPVS it reads everything, sums that up, and compares the sum.
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

// servers reads device and servers alone.
func (r *reader) servers(ctx context.Context) error {
	if err := r.owned(ctx); err != nil {
		return err
	}
	return r.all(ctx)
}
