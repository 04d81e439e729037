package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Watch implements dataplane.Driver. While it runs, commits of others that do
// nothing in our tables are entered into the ledger and cost nothing more; only
// those that do ring the bell, or a loss of news.
func (d *Driver) Watch(ctx context.Context, changed func()) error {
	defer d.seen.Unwatched()
	err := d.k.Watch(ctx, func(m nft.Move) {
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

// Changed implements dataplane.Driver.
func (d *Driver) Changed(ctx context.Context) (bool, error) {
	g, err := d.k.Generation(ctx)
	if err != nil {
		return false, err
	}
	return !d.seen.Settled(ctx, g), nil
}

// commitTries bounds how often one batch is sent: each refusal is a commit of a
// neighbour since we last heard of one.
const commitTries = 32

// commit sends the batch on condition that everything up to now is accounted for.
// If a neighbour was faster it waits for the news of that and sends the same batch
// again, for what it says about our tables is as true as before.
func (d *Driver) commit(ctx context.Context) error {
	defer func() {
		if d.batch.Bytes() > keepBatch {
			d.batch = nft.Batch{}
		}
	}()
	for range commitTries {
		d.batch.Expect = d.seen.Knows()
		g, err := d.k.Commit(ctx, &d.batch)
		if err == nil {
			d.seen.Account(g)
			return nil
		}
		if !errors.Is(err, nft.ErrGeneration) {
			return err
		}
		now, err := d.k.Generation(ctx)
		if err != nil {
			return err
		}
		// A long commit has its generation before it is told of; then what came before it must do.
		if !d.seen.Settled(ctx, now) && !d.seen.Knows().After(d.batch.Expect) {
			break
		}
	}
	return nft.ErrGeneration
}
