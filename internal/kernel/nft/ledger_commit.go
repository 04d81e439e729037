package nft

import (
	"context"
	"errors"
)

// commitTries bounds the retries of one batch: each rejection means a commit by another
// program since the last notification.
const commitTries = 32

// Commit sends b on condition that every generation up to the present one is accounted for, and accounts
// for the result; b.Expect is then the generation before. If another program committed first, Commit waits for
// the notification and retries the same batch: its operations on owned tables are still
// valid. ErrGeneration: only a Load can account for the other program's commit.
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
		// A long commit sets its generation before its notifications are sent. Then an advance of the ledger beyond b.Expect suffices.
		if !l.Settled(ctx, now) && !l.Knows().After(b.Expect) {
			break
		}
	}
	return 0, ErrGeneration
}
