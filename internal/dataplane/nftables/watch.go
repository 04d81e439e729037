package nftables

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Watch implements dataplane.Driver. While it runs, commits of other programs that
// change nothing in watched tables are accounted for in the ledger and cause no further
// work. Watch calls changed only for commits that change a watched table, and when
// notifications were lost.
func (d *Driver) Watch(ctx context.Context, changed func()) error {
	defer d.seen.Unwatched()
	err := d.k.Watch(ctx, func(m nft.Move) {
		if d.seen.Hear(m.Generation, !m.Lost && !slices.ContainsFunc(m.Tables, d.watched)) {
			changed()
		}
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("watch rule set: %w", err)
	}
	return nil
}

// isOurs reports whether t has the name of an owned table.
func isOurs(t nft.TableRef) bool { return t == tableRef(model.IPv4) || t == tableRef(model.IPv6) }

// Changed implements dataplane.Driver. It reports whether commits exist that the ledger
// cannot account for, so that the synced state may be stale.
func (d *Driver) Changed(ctx context.Context) (bool, error) {
	g, err := d.k.Generation(ctx)
	if err != nil {
		return false, err
	}
	return !d.seen.Settled(ctx, g), nil
}

// commit sends the batch, unless only a Load can account for earlier commits. It
// releases a batch buffer larger than keepBatch.
func (d *Driver) commit(ctx context.Context) error {
	defer func() {
		if d.batch.Bytes() > keepBatch {
			d.batch = nft.Batch{}
		}
	}()
	_, err := d.seen.Commit(ctx, d.k, &d.batch)
	return err
}
