package ipvs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Cleanup implements dataplane.Driver. It deletes the virtual servers first, then the device, then the tables, because the tables
// hold the account of the owned virtual servers.
func (d *Driver) Cleanup(ctx context.Context) error {
	ours, err := d.tables(ctx)
	if err != nil {
		return err
	}
	lost := false // whether the tables were lost, with the account of virtual servers
	for _, f := range allFamilies() {
		ran, err := d.ranHere(ctx, f)
		if err != nil {
			return fmt.Errorf("clean up: %w", err)
		}
		lost = lost || ran && !slices.Contains(ours, f)
	}
	if len(ours) == 0 && !lost { // no agent in this mode ran here
		return nil
	}
	if lost {
		list, err := d.nodePortServers(ctx)
		if err != nil {
			return fmt.Errorf("clean up: %w", err)
		}
		for i := range list {
			if err := d.p.IPVS.DelVirtual(ctx, list[i].VirtualKey); err != nil {
				return fmt.Errorf("clean up: %w", err)
			}
		}
	}
	if err := d.CleanDevice(ctx); err != nil {
		return err
	}
	return d.dropTables(ctx, ours)
}

// tables returns the families that have a table of the agent, independent of the families that this Driver serves.
func (d *Driver) tables(ctx context.Context) ([]model.Family, error) {
	tables, err := d.p.NFT.Tables(ctx)
	switch {
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT):
		return nil, nil // a kernel without nf_tables has no table of the agent
	case err != nil:
		return nil, fmt.Errorf("clean up: %w", err)
	}
	var ours []model.Family
	for _, f := range allFamilies() {
		if slices.ContainsFunc(tables, func(t nft.Table) bool { return t.Ref == tableRef(f) && markOf(&t) != "" }) {
			ours = append(ours, f)
		}
	}
	return ours, nil
}

// CleanDevice deletes the virtual servers that the Driver owns or whose address is on the device, and the device. kube-proxy has no table,
// so its virtual servers at the node's own addresses stay.
func (d *Driver) CleanDevice(ctx context.Context) error {
	virtuals, err := d.virtuals(ctx)
	if err != nil {
		return err
	}
	for _, v := range virtuals {
		if err := d.p.IPVS.DelVirtual(ctx, v); err != nil {
			return fmt.Errorf("clean up: %w", err)
		}
	}
	if err := errors.Join(d.removeRouting(ctx), d.p.Addresses.RemoveDevice(ctx)); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return nil
}

// removeRouting removes the rules and routes for taken ports, of both families.
func (d *Driver) removeRouting(ctx context.Context) error {
	routes, err := d.p.Addresses.Routes(ctx)
	problems := []error{err}
	for _, a := range routes {
		problems = append(problems, d.p.Addresses.RemoveRoute(ctx, a))
	}
	for _, six := range []bool{false, true} {
		problems = append(problems, d.p.Addresses.SetRule(ctx, six, 0))
	}
	return errors.Join(problems...)
}

func (d *Driver) virtuals(ctx context.Context) ([]ipvs.VirtualKey, error) {
	both := allFamilies()
	r := d.reader(nil)
	r.families = both[:]
	var out []ipvs.VirtualKey
	r.emit = func(k dataplane.Key, _ string) {
		if k.Kind == kindVirtual {
			v, _ := parseVirtual(k.ID, k.Family)
			out = append(out, v)
		}
	}
	if err := r.owned(ctx); err != nil {
		return nil, fmt.Errorf("clean up: %w", err)
	}
	if err := r.all(ctx); err != nil {
		return nil, fmt.Errorf("clean up: %w", err)
	}
	return out, nil
}

// Retire prepares the removal after another data plane has taken over the traffic: this one gets no new connections, and open
// connections continue. It returns the number of connections. The caller may repeat Retire until that is zero, and
// then calls Cleanup.
func (d *Driver) Retire(ctx context.Context) (connections int, err error) {
	ours, err := d.tables(ctx)
	if err != nil {
		return 0, err
	}
	var b nft.Batch
	for _, f := range ours {
		chains, err := d.p.NFT.Chains(ctx, tableRef(f))
		if err != nil {
			return 0, fmt.Errorf("retire: %w", err)
		}
		for i := range chains { // their state of the Services is no longer updated
			if n := chains[i].Ref.Name; n == "dispatch" || n == "dead-addresses" {
				b.FlushChain(chains[i].Ref)
			}
		}
	}
	if b.Len() > 0 {
		if _, err := d.p.NFT.Commit(ctx, &b); err != nil {
			return 0, fmt.Errorf("retire: %w", err)
		}
	}
	virtuals, err := d.virtuals(ctx)
	if err != nil {
		return 0, err
	}
	for _, v := range virtuals {
		n, err := d.retire(ctx, v)
		if err != nil {
			return 0, fmt.Errorf("retire: %w", err)
		}
		connections += n
	}
	return connections, nil
}

func (d *Driver) retire(ctx context.Context, v ipvs.VirtualKey) (connections int, err error) {
	reals, err := d.p.IPVS.Reals(ctx, v)
	if err != nil {
		return 0, err
	}
	for _, r := range reals {
		connections += int(r.Active + r.Inactive)
		if r.Weight == 0 {
			continue
		}
		if err := d.withhold(ctx, v, r.At); err != nil {
			return 0, err
		}
	}
	return connections, nil
}

// dropTables deletes the hooks first and the tables in the next transaction, because the kernel empties the sets of a table that
// it deletes before it unhooks the table's chains.
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
			return fmt.Errorf("clean up: delete Fairlead's tables: %w", err)
		}
		d.seen.Compared(g)
	}
	return nil
}

// IsOurs reports whether a Driver made a table.
func IsOurs(t *nft.Table) bool {
	return (t.Ref == tableRef(model.IPv4) || t.Ref == tableRef(model.IPv6)) && markOf(t) != ""
}
