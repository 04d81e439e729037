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

// put counts and emits an object.
func (r *reader) put(k dataplane.Key, value string) {
	r.count(k.Kind, k.Family, value, dataplane.HashName([]byte(k.ID)))
	if r.emit != nil {
		r.emit(k, value)
	}
}

// count adds an object to the sums.
func (r *reader) count(k dataplane.Kind, f model.Family, value string, name dataplane.NameHash) {
	r.add(k, 1, r.hash(k, f, value).With(name))
}

// add adds objects of one kind to the sums.
func (r *reader) add(k dataplane.Kind, objects int, sum uint64) {
	r.total.Objects += objects
	r.total.Sum += sum
	if inIPVS(k) {
		r.sum += sum
	}
}

// hash returns the hash of a value. It caches the last one of each kind, because most values are equal to the one before.
func (r *reader) hash(k dataplane.Kind, f model.Family, value string) dataplane.ValueHash {
	last := &r.hashes[k]
	if last.value != value || last.family != f || value == "" {
		*last = hashed{f, value, dataplane.HashValue(k, f, value)}
	}
	return last.hash
}

// hashed is a value with its cached hash.
type hashed struct {
	family model.Family
	value  string
	hash   dataplane.ValueHash
}

// summand returns an object's part of the total sum; 0 for one that is absent.
func summand(k dataplane.Key, value string) uint64 {
	if value == "" {
		return 0
	}
	return dataplane.ObjectSum(k, value)
}

// own stores which virtual servers are in the account of owned ones.
func (r *reader) own(f model.Family, l *listing) {
	if len(r.mine) == 0 {
		r.mine = make(map[ipvs.VirtualKey]bool, l.Objects)
	}
	begin := int32(0)
	for i, end := range l.ends {
		if int(end-begin) == addrLen(f)+8 { // otherwise it is foreign, in a set of that name
			r.mine[ownedKey(l.ids[begin:end], f)] = true
			r.six = r.six || f == model.IPv6
		}
		begin = end
		r.pause(i)
	}
}

func ownedKey[ID string | []byte](id ID, f model.Family) ipvs.VirtualKey {
	n := addrLen(f)
	a, _ := netip.AddrFromSlice([]byte(id[:n])) // the kernel's key contains it
	return ipvs.VirtualKey{Addr: a, Protocol: id[n], Port: uint16(id[n+4])<<8 | uint16(id[n+5])}
}

// pausing is the number of small pieces of work after which the reader checks whether it should pause.
const pausing = 64

// pause is called after the i-th small piece of work.
func (r *reader) pause(i int) {
	if r.rest != nil && i%pausing == 0 {
		r.rest.Pause()
	}
}

// all reads the device and IPVS. A virtual server is owned if it is in the account, or, because kube-proxy keeps no account, if
// its address is on the device and not excluded, or has a route for taken ports.
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
	for i, a := range addrs {
		onDevice[a] = !within(r.d.p.Exclude, a)
		r.six = r.six || a.Is6()
		r.address(kindAddress, a)
		r.pause(i)
	}
	taken, err := r.routing(ctx)
	if err != nil {
		return err
	}
	for _, a := range taken {
		onDevice[a] = true
		r.six = r.six || a.Is6()
	}
	ours := func(v *ipvs.Virtual) bool { return onDevice[v.Addr] || r.mine[v.VirtualKey] }
	return r.from.IPVS.All(ctx, ipvs.Wanted{OnlyIPv4: !r.six, Is: ours}, func(v *ipvs.Virtual, reals []ipvs.Real) error {
		r.server(v, reals)
		return nil
	})
}

// routing reports the rules and routes for taken ports, and returns the addresses of the routes.
func (r *reader) routing(ctx context.Context) ([]netip.Addr, error) {
	for _, f := range r.families {
		mark, err := r.from.Addresses.Rule(ctx, f == model.IPv6)
		if err != nil {
			return nil, err
		}
		if mark != 0 {
			r.put(dataplane.Key{Kind: kindRule, Family: f}, valueOfRule(mark))
		}
	}
	routes, err := r.from.Addresses.Routes(ctx)
	for _, a := range routes {
		r.address(kindRoute, a)
	}
	return routes, err
}

// address reports an address on the device or of a route.
func (r *reader) address(k dataplane.Kind, a netip.Addr) {
	r.ids = nft.AppendAddr(r.ids[:0], a)
	r.count(k, model.FamilyOf(a), present, dataplane.HashName(r.ids))
	if r.emit != nil {
		r.emit(dataplane.Key{Kind: k, Family: model.FamilyOf(a), ID: string(r.ids)}, present)
	}
}

// server reports a virtual server and its real servers.
func (r *reader) server(v *ipvs.Virtual, reals []ipvs.Real) {
	f := model.FamilyOf(v.Addr)
	r.ids = appendVirtual(r.ids[:0], v.VirtualKey)
	n := len(r.ids)
	r.count(kindVirtual, f, r.value(v), dataplane.HashName(r.ids))
	var last *ipvs.Real // the last one that has a weight
	var weight dataplane.ValueHash
	translated := r.hash(kindReal, f, present)
	sum, weights := uint64(0), 0
	for i := range reals {
		at := &reals[i]
		r.ids = appendReal(r.ids[:n], at.At)
		name := dataplane.HashName(r.ids)
		if at.Method == 0 {
			sum += translated.With(name)
		} else {
			sum += r.hash(kindReal, f, valueOfReal(at)).With(name)
		}
		if at.Weight == 0 {
			continue
		}
		if last == nil || at.Weight != last.Weight || at.Limited != last.Limited {
			weight = r.hash(kindWeight, f, valueOfWeight(at))
		}
		sum, weights, last = sum+weight.With(name), weights+1, at
	}
	r.add(kindReal, len(reals)+weights, sum)
	if r.emit != nil {
		r.emitServer(v, reals)
	}
}

// emitServer emits what was counted. All IDs are substrings of one string: allocating each separately takes longer than reading them.
func (r *reader) emitServer(v *ipvs.Virtual, reals []ipvs.Real) {
	f := model.FamilyOf(v.Addr)
	r.ids = appendVirtual(r.ids[:0], v.VirtualKey)
	n := len(r.ids)
	for i := range reals {
		r.ids = appendReal(append(r.ids, r.ids[:n]...), reals[i].At)
	}
	ids := string(r.ids)
	r.emit(dataplane.Key{Kind: kindVirtual, Family: f, ID: ids[:n]}, r.value(v))
	from := n
	for i := range reals {
		to := from + n + 2 + reals[i].At.Addr().BitLen()/8
		id := ids[from:to]
		from = to
		r.emit(dataplane.Key{Kind: kindReal, Family: f, ID: id}, valueOfReal(&reals[i]))
		if w := valueOfWeight(&reals[i]); w != "" {
			r.emit(dataplane.Key{Kind: kindWeight, Family: f, ID: id}, w)
		}
	}
}

func valueOfReal(r *ipvs.Real) string {
	if r.Method != 0 {
		return "another method" // Load only: never desired
	}
	return present
}

// valueOfWeight returns the value of a real server's weight; "" if it gets no new connections.
func valueOfWeight(r *ipvs.Real) string {
	switch {
	case r.Weight == 0:
		return ""
	case r.Limited:
		return strconv.FormatUint(uint64(r.Weight), 10) + " with a limit" // Load only: never desired
	}
	return strconv.FormatUint(uint64(r.Weight), 10) // which does not allocate up to 99
}

// value returns valueOfVirtual(v). It caches the last value, because most are equal to the one before.
func (r *reader) value(v *ipvs.Virtual) string {
	like := *v
	like.VirtualKey = ipvs.VirtualKey{}
	if r.valued == "" || like != r.last {
		r.last, r.valued = like, valueOfVirtual(v)
	}
	return r.valued
}
