package ipvs

import (
	"context"
	"net/netip"
	"strconv"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// put reports an object; those of IPVS are summed up.
func (r *reader) put(k dataplane.Key, value string) {
	if inIPVS(k.Kind) && !r.unsummed {
		r.sum += summand(k, value)
	}
	if r.emit != nil {
		r.emit(k, value)
	}
}

// summand is an object's part of the sum of all; nothing for one that is absent.
func summand(k dataplane.Key, value string) uint64 {
	if value == "" {
		return 0
	}
	return dataplane.ObjectSum(k, value)
}

// own notes that a virtual server is in our account.
func (r *reader) own(id string, f model.Family) {
	r.mine[ownedKey(id, f)] = true
	r.six = r.six || f == model.IPv6
}

func ownedKey(id string, f model.Family) ipvs.VirtualKey {
	n := addrLen(f)
	a, _ := netip.AddrFromSlice([]byte(id[:n])) // the kernel's key has it
	return ipvs.VirtualKey{Addr: a, Protocol: id[n], Port: uint16(id[n+4])<<8 | uint16(id[n+5])}
}

// all reads the device and IPVS. A virtual server is ours by our own account, or, because kube-proxy keeps none, if
// its address is on the device and not excluded.
func (r *reader) all(ctx context.Context) error {
	has, err := r.from.Addresses.HasDevice(ctx)
	if err != nil {
		return err
	}
	if has {
		r.put(dataplane.Key{Kind: kindDevice, Family: r.families[0], ID: ipvs.Device}, present)
	}
	addrs, err := r.from.Addresses.List(ctx)
	if err != nil {
		return err
	}
	onDevice := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		onDevice[a] = !within(r.d.p.Exclude, a)
		r.six = r.six || a.Is6()
		r.put(dataplane.Key{Kind: kindAddress, Family: model.FamilyOf(a), ID: string(nft.AppendAddr(nil, a))}, present)
	}
	ours := func(v *ipvs.Virtual) bool { return r.mine[v.VirtualKey] || onDevice[v.Addr] }
	return r.from.IPVS.All(ctx, ipvs.Wanted{OnlyIPv4: !r.six, Is: ours}, func(v *ipvs.Virtual, reals []ipvs.Real) error {
		r.server(v, reals)
		return nil
	})
}

// server reports a virtual server and its real ones. All their IDs are parts of one string: to make one for each takes longer than to
// read them.
func (r *reader) server(v *ipvs.Virtual, reals []ipvs.Real) {
	f := model.FamilyOf(v.Addr)
	r.ids = appendVirtual(r.ids[:0], v.VirtualKey)
	n := len(r.ids)
	for i := range reals {
		r.ids = appendReal(append(r.ids, r.ids[:n]...), reals[i].At)
	}
	ids := string(r.ids)
	r.put(dataplane.Key{Kind: kindVirtual, Family: f, ID: ids[:n]}, r.value(v))
	from := n
	for i := range reals {
		to := from + n + 2 + reals[i].At.Addr().BitLen()/8
		id := ids[from:to]
		from = to
		value := present
		if reals[i].Method != 0 {
			value = "another method" // Load only: never what is wanted
		}
		r.put(dataplane.Key{Kind: kindReal, Family: f, ID: id}, value)
		if w := valueOfWeight(&reals[i]); w != "" {
			r.put(dataplane.Key{Kind: kindWeight, Family: f, ID: id}, w)
		}
	}
}

// valueOfWeight is "" of a real server that gets no new connections.
func valueOfWeight(r *ipvs.Real) string {
	switch {
	case r.Weight == 0:
		return ""
	case r.Limited:
		return strconv.FormatUint(uint64(r.Weight), 10) + " with a limit" // Load only: never what is wanted
	}
	return strconv.FormatUint(uint64(r.Weight), 10) // which has those to 99 ready
}

// value is valueOfVirtual. That of most is the same as of the one before.
func (r *reader) value(v *ipvs.Virtual) string {
	like := *v
	like.VirtualKey = ipvs.VirtualKey{}
	if r.valued == "" || like != r.last {
		r.last, r.valued = like, valueOfVirtual(v)
	}
	return r.valued
}
