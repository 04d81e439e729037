package ipvs

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Render implements dataplane.Driver.
func (d *Driver) Render(f *model.Frontend, view *model.NodeView, emit func(dataplane.Object)) {
	if !d.serves(f.Key.Family) || Unsupported(f) != "" {
		return
	}
	r := frontend{d: d, f: f, view: view, emit: emit}
	verdict, backends := r.verdict()
	kind := kindService
	if f.Kind == model.NodePort {
		kind = kindNodePort
	}
	r.put(kind, string(vipKey(f.Key)), verdict)
	if f.Guarded {
		r.guard()
	}
	if len(backends) > 0 {
		r.hairpin(backends)
		for _, a := range r.addrs() {
			r.virtual(a, backends)
		}
	}
	r.bring(len(backends) > 0)
}

// Unsupported returns why this mode does not serve a Frontend, and how to fix it; "" if it does.
func Unsupported(f *model.Frontend) string {
	if f.Key.Range() {
		return "an IPVS virtual server has one port: a port range needs --proxy-mode nftables or iptables"
	}
	return ""
}

// frontend renders one Frontend.
type frontend struct {
	d    *Driver
	f    *model.Frontend
	view *model.NodeView
	emit func(dataplane.Object)
}

// bring renders the objects that deliver the Frontend's packets to this node, where IPVS works. A ClusterIP is on the device. An external or
// load balancer address may be another host's, so only this protocol and port is taken: a marked packet is routed with a routing table in which
// the address is local. Without endpoints the port is not taken: filter-forward refuses, since the kernel sends no ICMP error from an
// address that is not local.
func (r *frontend) bring(serves bool) {
	a := r.f.Key.Addr
	if !a.IsValid() || slices.Contains(r.view.NodeAddrs, a) {
		return
	}
	id := string(nft.AppendAddr(nil, a))
	if r.f.Kind == model.ClusterIP {
		r.put(kindAddressKnown, id, present)
		r.put(kindAddress, id, present)
		return
	}
	if serves {
		r.put(kindTaken, string(vipKey(r.f.Key)), present)
		r.put(kindRoute, id, present)
	}
}

func (r *frontend) put(k dataplane.Kind, id, value string) {
	r.emit(dataplane.Object{Key: dataplane.Key{Kind: k, Family: r.f.Key.Family, ID: id}, Value: value})
}

// addrs returns the addresses at which the Frontend answers.
func (r *frontend) addrs() []netip.Addr {
	if r.f.Kind != model.NodePort {
		return []netip.Addr{r.f.Key.Addr}
	}
	var out []netip.Addr
	for _, a := range r.view.NodePortAddrs {
		if model.FamilyOf(a) == r.f.Key.Family && !a.IsLoopback() { // IPVS sends nothing from a loopback address to another host
			out = append(out, a)
		}
	}
	return out
}

// verdict returns the verdict for a new connection, and the endpoints that it may use. A virtual server has one list for all
// clients: under externalTrafficPolicy Local pods and the node share the endpoints on this node if
// there are any, and use those of the whole cluster if there are none.
func (r *frontend) verdict() (string, []model.Backend) {
	f := r.f
	cluster, local := sane(f.Verdict, f.Backends), sane(f.LocalVerdict, f.LocalBackends)
	switch {
	case f.LocalOnly && local == model.Forward:
		return chainLocal, f.LocalBackends
	case f.LocalOnly && cluster == model.Forward && local == model.Drop:
		return chainLocalDrop, f.Backends
	case f.LocalOnly && cluster == model.Forward:
		return chainLocalReject, f.Backends
	case f.LocalOnly && local == model.Drop, cluster == model.Drop:
		return verdictDrop, nil
	case cluster != model.Forward: // an unknown verdict fails closed
		return chainReject, nil
	case f.Kind == model.ClusterIP:
		return chainCluster, f.Backends
	case f.Masquerade:
		return chainMasquerade, f.Backends
	}
	return verdictServe, f.Backends
}

// sane returns Reject if there is no endpoint to forward to, so that it fails closed.
func sane(v model.Verdict, list []model.Backend) model.Verdict {
	if v == model.Forward && len(list) == 0 {
		return model.Reject
	}
	return v
}

// guard renders the source ranges. The node's own connection to an address on the device has that address as its source, so the
// address is allowed if one of the node's addresses is.
func (r *frontend) guard() {
	guarded, allowed := kindGuarded, kindAllowed
	if r.f.Kind == model.NodePort {
		guarded, allowed = kindGuardedNodePort, kindAllowedNodePort
	}
	id := vipKey(r.f.Key)
	r.put(guarded, string(id), present)
	ranges := ofFamily(r.f.SourceRanges, nftFamily(r.f.Key.Family))
	if a := r.f.Key.Addr; a.IsValid() && !within(ranges, a) && slices.ContainsFunc(r.view.NodeAddrs, func(n netip.Addr) bool { return within(ranges, n) }) {
		ranges = append(ranges, netip.PrefixFrom(a, a.BitLen()))
	}
	for _, p := range ranges {
		first, last := nft.PrefixBounds(p)
		key := nft.AppendAddr(slices.Clone(id), first)
		r.put(allowed, string(nft.AppendAddr(append(key, id...), last)), present)
	}
}

func within(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

func (r *frontend) hairpin(list []model.Backend) {
	for i := range list {
		if b := &list[i]; b.Local {
			key := nft.AppendAddr(nft.AppendAddr(nil, b.Addr), b.Addr)
			r.put(kindHairpin, string(nft.AppendPort(nft.AppendProto(key, uint8(r.f.Key.Protocol)), b.Port)), present)
		}
	}
}

// virtual renders a virtual server and its real servers. Endpoints that are terminating and still serve have no weight:
// their connections continue.
func (r *frontend) virtual(a netip.Addr, list []model.Backend) {
	key := ipvs.VirtualKey{Addr: a, Protocol: uint8(r.f.Key.Protocol), Port: r.f.Key.Port}
	id := virtualID(key)
	at := r.f.Key
	at.Addr = a
	r.put(kindOwned, string(vipKey(at)), present)
	r.put(kindVirtual, id, r.service(list))
	for i := range list {
		b := &list[i]
		to := realID(id, b.AddrPort())
		r.put(kindReal, to, present)
		r.put(kindWeight, to, strconv.Itoa(int(b.Weight)))
	}
	for _, o := range r.f.Others {
		if o.Serving {
			r.put(kindReal, realID(id, o.Addr), present)
		}
	}
}

// service returns the value of a virtual server: scheduler, flags, seconds of persistence.
func (r *frontend) service(list []model.Backend) string {
	scheduler, flags, seconds := cmp.Or(r.f.IPVSScheduler, r.d.p.Scheduler), ipvs.Flags(0), int64(0)
	weighted := slices.ContainsFunc(list, func(b model.Backend) bool { return b.Weight != 1 })
	switch {
	case r.f.ConsistentHash: // without the client's port; if the chosen endpoint has no weight, another one
		scheduler, flags = "mh", ipvs.Sched1
	case weighted && (scheduler == "rr" || scheduler == "lc"): // these ignore weights
		scheduler = "w" + scheduler
	case scheduler == "mh": // the flags that kube-proxy sets
		flags = ipvs.Sched2
	}
	if t := r.f.AffinityTimeout; t > 0 {
		flags |= ipvs.Persistent
		seconds = max(1, int64(t/time.Second))
	}
	return fmt.Sprintf("%s %d %d", scheduler, flags, seconds)
}

func valueOfVirtual(v *ipvs.Virtual) string {
	value := fmt.Sprintf("%s %d %d", v.Scheduler, v.Flags, int64(v.Timeout/time.Second))
	if v.Wide {
		value += " for networks" // read only: never desired
	}
	return value
}

func parseService(key ipvs.VirtualKey, value string) (ipvs.Virtual, error) {
	v := ipvs.Virtual{VirtualKey: key}
	var seconds int64
	_, err := fmt.Sscanf(value, "%s %d %d", &v.Scheduler, &v.Flags, &seconds)
	v.Timeout = time.Duration(seconds) * time.Second
	return v, err
}
