package nftables

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Watch implements dataplane.Driver. A generation that is accounted for rings no
// bell: it is one of ours, or older than what we have compared with, for a commit
// of ours succeeds only on the generation that we know.
func (d *Driver) Watch(ctx context.Context, changed func()) error {
	err := d.k.Watch(ctx, func(g nft.Generation) {
		if g == 0 || int32(uint32(g)-d.seen.Load()) > 0 {
			changed()
		}
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("watch rule set: %w", err)
	}
	return nil
}

// Changed implements dataplane.Driver.
func (d *Driver) Changed(ctx context.Context) (bool, error) {
	g, err := d.k.Generation(ctx)
	if err != nil {
		return false, err
	}
	return d.unsure || g != d.gen, nil
}
