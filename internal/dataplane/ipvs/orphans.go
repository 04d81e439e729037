package ipvs

import (
	"context"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/model"
)

// The usual range of NodePorts (kube-apiserver's --service-node-port-range).
const (
	firstNodePort = 30000
	lastNodePort  = 32767
)

// ranHere reports whether an agent in this mode has run in this network namespace, which is the case if its routing rule exists. A flush of
// the rule set (nft flush ruleset) deletes the tables and keeps the rule.
func (d *Driver) ranHere(ctx context.Context, f model.Family) (bool, error) {
	mark, err := d.p.Addresses.Rule(ctx, f == model.IPv6)
	return mark != 0, err
}

// orphans returns the deletions of the virtual servers of NodePorts that an earlier run left and that are no longer desired. The table holds
// the account of them. If a batch creates the table although the routing rule of an earlier run exists, the account is lost. In that case
// a virtual server with a port of the usual NodePort range is treated as one of them, unless its address is excluded.
func (d *Driver) orphans(ctx context.Context, ops []dataplane.Op) (out []dataplane.Op, err error) {
	lost, wanted := map[model.Family]bool{}, map[dataplane.Key]bool{}
	for i := range ops {
		if op := &ops[i]; op.Key.Kind == dataplane.KindRoot && op.Have == "" && op.Want != "" {
			if lost[op.Key.Family], err = d.ranHere(ctx, op.Key.Family); err != nil {
				return nil, err
			}
		} else if op.Key.Kind == kindVirtual {
			wanted[op.Key] = true
		}
	}
	if !lost[model.IPv4] && !lost[model.IPv6] {
		return nil, nil
	}
	list, err := d.nodePortServers(ctx)
	for i := range list {
		k := dataplane.Key{Kind: kindVirtual, Family: model.FamilyOf(list[i].Addr), ID: virtualID(list[i].VirtualKey)}
		if lost[k.Family] && !wanted[k] {
			out = append(out, dataplane.Op{Key: k, Have: valueOfVirtual(&list[i])})
		}
	}
	return out, err
}

// nodePortServers lists the virtual servers that may be those of NodePorts.
func (d *Driver) nodePortServers(ctx context.Context) ([]ipvs.Virtual, error) {
	return ipvs.List(ctx, d.p.IPVS, ipvs.Wanted{Is: func(v *ipvs.Virtual) bool {
		return firstNodePort <= v.Port && v.Port <= lastNodePort && !within(d.p.Exclude, v.Addr)
	}})
}
