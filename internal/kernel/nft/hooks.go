package nft

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// EmptyHooks takes the rules out of a table's base chains, so that no packet is led into the table any more. It comes, in a
// transaction of its own, before the table is deleted: the kernel takes a table away in steps, and for some milliseconds its rules
// would look for Services in maps that are empty already, and refuse what is under way (seen on Linux 6.1 and 6.12: single new
// connections). A table that is not there needs nothing.
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
