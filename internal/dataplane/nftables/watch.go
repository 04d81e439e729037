package nftables

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Watch implements dataplane.Driver. While it runs, commits of other programs that do not
// concern the watched tables are entered into the ledger and cost nothing more. It calls
// changed only for commits that do, and for lost notifications.
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

func isOurs(t nft.TableRef) bool { return t == tableRef(model.IPv4) || t == tableRef(model.IPv6) }

// Changed implements dataplane.Driver.
func (d *Driver) Changed(ctx context.Context) (bool, error) {
	g, err := d.k.Generation(ctx)
	if err != nil {
		return false, err
	}
	return !d.seen.Settled(ctx, g), nil
}

// commit sends the batch, and fails if only a Load can account for what was written.
func (d *Driver) commit(ctx context.Context) error {
	defer func() {
		if d.batch.Bytes() > keepBatch {
			d.batch = nft.Batch{}
		}
	}()
	_, err := d.seen.Commit(ctx, d.k, &d.batch)
	return err
}
