package ipvs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Cleanup implements dataplane.Driver. The virtual servers go first, then the device, then the tables, which
// know what is ours.
func (d *Driver) Cleanup(ctx context.Context) error {
	tables, err := d.p.NFT.Tables(ctx)
	switch {
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT):
		tables = nil // a kernel without nf_tables holds none of ours
	case err != nil:
		return fmt.Errorf("clean up: %w", err)
	}
	var ours []model.Family
	for _, f := range allFamilies() {
		if slices.ContainsFunc(tables, func(t nft.Table) bool { return t.Ref == tableRef(f) && markOf(&t) != "" }) {
			ours = append(ours, f)
		}
	}
	if len(ours) == 0 {
		return nil // without a table there is nothing that we made, or nothing by which we know it
	}
	r := reader{d: d, families: ours}
	var virtuals []dataplane.Key
	r.emit = func(k dataplane.Key, _ string) {
		if k.Kind == kindVirtual {
			virtuals = append(virtuals, k)
		}
	}
	if err := r.owned(ctx); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	if err := r.all(ctx); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	for _, k := range virtuals {
		key, _ := parseVirtual(k.ID, k.Family)
		if err := d.p.IPVS.DelVirtual(ctx, key); err != nil {
			return fmt.Errorf("clean up: %w", err)
		}
	}
	if err := d.p.Addresses.RemoveDevice(ctx); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return d.dropTables(ctx, ours)
}

// dropTables deletes the hooks first and the tables in the next transaction: the kernel empties the sets of a table that
// it deletes before it takes its chains out of the packets' way.
func (d *Driver) dropTables(ctx context.Context, of []model.Family) error {
	var hooks, tables nft.Batch
	for _, f := range of {
		chains, err := d.p.NFT.Chains(ctx, tableRef(f))
		if err != nil {
			return fmt.Errorf("clean up: %w", err)
		}
		for i := range chains {
			if chains[i].Hook != nil {
				hooks.DelChain(chains[i].Ref)
			}
		}
		tables.NewTable(tableRef(f), nil)
		tables.DelTable(tableRef(f))
	}
	for _, b := range [...]*nft.Batch{&hooks, &tables} {
		if b.Len() == 0 {
			continue
		}
		g, err := d.p.NFT.Commit(ctx, b)
		if err != nil {
			return fmt.Errorf("clean up: delete our tables: %w", err)
		}
		d.seen.compared(g)
	}
	return nil
}

// IsOurs tells whether a table is one that a Driver has made.
func IsOurs(t *nft.Table) bool {
	return (t.Ref == tableRef(model.IPv4) || t.Ref == tableRef(model.IPv6)) && markOf(t) != ""
}
