package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Probe implements dataplane.Driver. For each family it creates the agent's table under another name and deletes it in the same
// transaction. It also creates a virtual server with the configured scheduler at an address that is reserved for documentation
// (RFC 5737, RFC 3849).
func (d *Driver) Probe(ctx context.Context) (dataplane.Caps, error) {
	caps := dataplane.Caps{DropsStrays: true, OneList: true, OwnsAddresses: true, Unsupported: Unsupported}
	var problems []error
	for _, f := range allFamilies() {
		if !d.serves(f) {
			continue
		}
		err := d.probeFamily(ctx, f)
		switch {
		case err == nil:
			caps.Families = append(caps.Families, f)
		case !unsupported(err):
			return caps, fmt.Errorf("probe ipvs: %w", err)
		default:
			problems = append(problems, fmt.Errorf("%s: %w", f, err))
			caps.Notes = append(caps.Notes, fmt.Sprintf("%s is not served: %v", f, err))
		}
	}
	if len(caps.Families) == 0 {
		return caps, fmt.Errorf("ipvs: %w: %w", dataplane.ErrUnsupported, errors.Join(problems...))
	}
	d.families = caps.Families
	if t := d.p.Timeouts; t != (ipvs.Timeouts{}) {
		if err := d.p.IPVS.SetTimeouts(ctx, t); err != nil {
			return caps, err
		}
	}
	return caps, nil
}

// unsupported reports whether an error means that the kernel lacks a feature, not that it failed temporarily.
func unsupported(err error) bool {
	for _, e := range [...]unix.Errno{unix.EPERM, unix.EACCES, unix.EOPNOTSUPP, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ENOENT, unix.EINVAL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return errors.Is(err, ipvs.ErrNoIPVS)
}

func (d *Driver) probeFamily(ctx context.Context, f model.Family) error {
	if err := d.probeTable(ctx, f); err != nil {
		return fmt.Errorf("nftables, which masquerades and rejects: %w", err)
	}
	at := ipvs.VirtualKey{Addr: netip.MustParseAddr("192.0.2.254"), Protocol: uint8(model.TCP), Port: 9}
	if f == model.IPv6 {
		at.Addr = netip.MustParseAddr("2001:db8::fe")
	}
	err := d.p.IPVS.PutVirtual(ctx, ipvs.Virtual{VirtualKey: at, Scheduler: d.p.Scheduler})
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("the kernel has no scheduler %s (module ip_vs_%s): %w", d.p.Scheduler, d.p.Scheduler, err)
	}
	return errors.Join(err, d.p.IPVS.DelVirtual(ctx, at))
}

func (d *Driver) probeTable(ctx context.Context, f model.Family) error {
	table := nft.TableRef{Family: nftFamily(f), Name: tableName + "-probe"}
	var b nft.Batch
	b.NewTable(table, nil)
	for _, def := range setDefs() {
		spec := def.spec(f)
		spec.Ref.Table = table
		b.NewSet(spec)
	}
	view := model.NodeView{MasqueradeBit: 14, Local: model.LocalDetector{Mode: model.DetectInterfaceNamePrefix, Interface: "veth"}}
	for _, c := range chainDefs() {
		b.NewChain(nft.ChainSpec{Ref: table.Chain(c.name), Hook: c.hook})
	}
	for _, c := range chainDefs() {
		for _, r := range c.rules(langOf(f), &view) {
			b.NewRule(nft.RuleSpec{Chain: table.Chain(c.name), Exprs: r})
		}
	}
	b.DelTable(table)
	_, err := d.p.NFT.Commit(ctx, &b)
	return err
}
