package nft

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// EmptyHooks deletes the rules of a table's base chains, so that no packet enters the table any more. It is called, in a
// separate transaction, before the table is deleted: the kernel deletes a table in steps, and for some milliseconds its rules
// would look up Services in maps that are empty already, and reject packets in flight (seen on Linux 6.1 and 6.12: single new
// connections). For a missing table it does nothing.
func EmptyHooks(ctx context.Context, k Kernel, t TableRef) error {
	chains, err := k.Chains(ctx, t)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("list the chains of table %s: %w", t, err)
	}
	var b Batch
	for i := range chains {
		if chains[i].Hook != nil {
			b.FlushChain(chains[i].Ref)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	if _, err := k.Commit(ctx, &b); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("empty the base chains of table %s: %w", t, err)
	}
	return nil
}
