package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/model"
)

// giveBackTries bounds how often GiveBack retries after another program has changed the rule set concurrently.
const giveBackTries = 5

// GiveBack removes addresses from the device that an older version put there although they may be other hosts'. It routes the Services' ports
// of these addresses to this node by the routing rule instead. It returns the number of these addresses. It runs before any Service is known,
// because the address may be the API server's, and then no Service would ever be known (k3s#2804). The older version's table identifies them: an
// address on the device is a ClusterIP if one of its ports has that verdict. If the routing rule exists, this version has run and GiveBack
// does nothing.
func (d *Driver) GiveBack(ctx context.Context, masqueradeBit uint8) (n int, err error) {
	for range giveBackTries {
		var ops []dataplane.Op
		if ops, n, err = d.older(ctx, &model.NodeView{MasqueradeBit: masqueradeBit}); err == nil && n > 0 {
			_, err = d.Apply(ctx, dataplane.Batch{Ops: ops})
		}
		if !errors.Is(err, dataplane.ErrConflict) && !errors.Is(err, dataplane.ErrInterrupted) {
			break
		}
	}
	if err != nil {
		return 0, fmt.Errorf("remove addresses from %s: %w", ipvs.Device, err)
	}
	return n, nil
}

// older returns the changes that GiveBack makes, and the number of addresses.
func (d *Driver) older(ctx context.Context, view *model.NodeView) (ops []dataplane.Op, n int, err error) {
	four, err4 := d.ranHere(ctx, model.IPv4)
	six, err6 := d.ranHere(ctx, model.IPv6)
	has, err := d.p.Addresses.HasDevice(ctx)
	if err := errors.Join(err4, err6, err); four || six || !has || err != nil {
		return nil, 0, err
	}
	var onDevice []dataplane.Key
	ports, alone, known := map[netip.Addr][]string{}, map[netip.Addr]bool{}, map[dataplane.Key]bool{}
	r := d.reader(func(k dataplane.Key, value string) {
		switch k.Kind {
		case kindAddress:
			onDevice = append(onDevice, k)
		case kindAddressKnown:
			known[k] = true
		case kindService:
			a := addrOf(k)
			ports[a] = append(ports[a], k.ID)
			alone[a] = alone[a] || value == chainCluster
		}
	})
	if _, err := r.everything(ctx); err != nil {
		return nil, 0, err
	}
	onDevice = slices.DeleteFunc(onDevice, func(k dataplane.Key) bool { a := addrOf(k); return len(ports[a]) == 0 || alone[a] })
	begun := map[model.Family]bool{}
	for _, k := range onDevice {
		if !begun[k.Family] {
			begun[k.Family] = true
			ops = append(ops, d.leading(k.Family, view)...)
		}
		for _, id := range ports[addrOf(k)] {
			ops = append(ops, dataplane.Op{Key: dataplane.Key{Kind: kindTaken, Family: k.Family, ID: id}, Want: present})
		}
		ops = append(ops, dataplane.Op{Key: dataplane.Key{Kind: kindRoute, Family: k.Family, ID: k.ID}, Want: present}, dataplane.Op{Key: k, Have: present})
		if element := (dataplane.Key{Kind: kindAddressKnown, Family: k.Family, ID: k.ID}); known[element] {
			ops = append(ops, dataplane.Op{Key: element, Have: present})
		}
	}
	return ops, len(onDevice), nil
}

// addrOf returns the address at the start of an object's ID.
func addrOf(k dataplane.Key) netip.Addr {
	a, _ := netip.AddrFromSlice([]byte(k.ID[:min(len(k.ID), addrLen(k.Family))])) // else the zero Addr
	return a
}

// leading returns the ops that route marked packets of one family to this node. An older version has none of these objects.
func (d *Driver) leading(f model.Family, view *model.NodeView) (ops []dataplane.Op) {
	add := func(k dataplane.Kind, id, want string) {
		ops = append(ops, dataplane.Op{Key: dataplane.Key{Kind: k, Family: f, ID: id}, Want: want})
	}
	add(kindSet, setsByKind()[kindTaken], present)
	add(kindChain, chainPrerouting, d.write(func() []rule { return preroutingRules(langOf(f), view) }))
	add(kindRule, "", valueOfRule(takenMark(view)))
	return ops
}
