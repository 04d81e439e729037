package nft

import (
	"context"
	"errors"
)

// commitTries bounds how often one batch is sent: each refusal is a commit of a
// neighbour since we last heard of one.
const commitTries = 32

// Commit sends b on condition that everything up to now is accounted for, and accounts
// for it; b.Expect is then the generation before. If a neighbour was faster it waits for
// the news of that and sends the same batch again, for what it says about our tables is
// as true as before. ErrGeneration: only a Load can account for what was written.
func (l *Ledger) Commit(ctx context.Context, k Kernel, b *Batch) (Generation, error) {
	for range commitTries {
		b.Expect = l.Knows()
		g, err := k.Commit(ctx, b)
		if err == nil {
			l.Account(g)
			return g, nil
		}
		if !errors.Is(err, ErrGeneration) {
			return 0, err
		}
		now, err := k.Generation(ctx)
		if err != nil {
			return 0, err
		}
		// A long commit has its generation before it is told of; then what came before it must do.
		if !l.Settled(ctx, now) && !l.Knows().After(b.Expect) {
			break
		}
	}
	return 0, ErrGeneration
}
