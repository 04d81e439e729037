package dataplanetest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// View returns the node view for the suite's Frontends.
func View() model.NodeView {
	return model.NodeView{
		NodePortAddrs: addrs("127.0.0.1", "192.0.2.1", "2001:db8::1"), LocalhostNodePorts: true,
		NodeAddrs: addrs("127.0.0.1", "192.0.2.1", "::1", "2001:db8::1"),
		Local: model.LocalDetector{Mode: model.DetectCIDR, CIDRs: []netip.Prefix{
			netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")}},
		ServiceCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:10:96::/112")},
		MasqueradeBit: 14,
	}
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// Service returns the key of the i-th Service.
func Service(i int) model.ServiceKey {
	return model.ServiceKey{Namespace: "suite", Name: fmt.Sprintf("s%d", i)}
}

// addr returns the n-th address after base: it adds n to the last two bytes.
func addr(base string, n int) netip.Addr {
	b := netip.MustParseAddr(base).AsSlice()
	at := len(b) - 2
	v := int(b[at])<<8 + int(b[at+1]) + n
	b[at], b[at+1] = byte(v>>8), byte(v)
	a, _ := netip.AddrFromSlice(b)
	return a
}

func pick(f model.Family, v4, v6 string) string {
	if f == model.IPv6 {
		return v6
	}
	return v4
}

// Backends returns n endpoints with consecutive numbers that start at from; every third is on this node.
func Backends(f model.Family, from, n int) []model.Backend {
	out := make([]model.Backend, 0, n)
	for i := from; i < from+n; i++ {
		out = append(out, model.Backend{Addr: addr(pick(f, "10.244.1.0", "fd00:10:244::100"), i), Port: 8080, Weight: 1, Local: i%3 == 0})
	}
	return out
}

// ClusterIP returns the simplest Frontend: Service i, with n endpoints.
func ClusterIP(f model.Family, i, n int) model.Frontend {
	fe := model.Frontend{
		Key: model.FrontendKey{Family: f, Protocol: model.TCP, Port: 80,
			Addr: addr(pick(f, "10.96.0.1", "fd00:10:96::1"), i)},
		Kind: model.ClusterIP, Service: Service(i), Port: "http", Verdict: model.Forward, Backends: Backends(f, i*16, n),
	}
	if n == 0 {
		fe.Verdict = model.Reject
	}
	return fe
}

// Every returns one Frontend of a family for each case that a data plane must support.
func Every(f model.Family) []model.Frontend {
	var out []model.Frontend
	add := func(change func(fe *model.Frontend)) {
		i := len(out)
		fe := ClusterIP(f, i, 1+i%9)
		change(&fe)
		tabulate(&fe)
		out = append(out, fe)
	}
	external := func(fe *model.Frontend, kind model.FrontendKind) {
		fe.Kind, fe.Masquerade = kind, true
		if kind == model.NodePort {
			fe.Key.Addr, fe.Key.Port = netip.Addr{}, 30000+fe.Key.Port+uint16(len(out))
			return
		}
		fe.Key.Addr = addr(pick(f, "198.51.100.1", "2001:db8:100::1"), len(out))
	}
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		add(func(fe *model.Frontend) { fe.Key.Protocol = p })
		for _, kind := range []model.FrontendKind{model.ExternalIP, model.LoadBalancer, model.NodePort} {
			add(func(fe *model.Frontend) { external(fe, kind); fe.Key.Protocol = p })
		}
	}
	for _, kind := range []model.FrontendKind{model.ClusterIP, model.LoadBalancer, model.NodePort} {
		for _, change := range sorts(f) {
			add(func(fe *model.Frontend) {
				if kind != model.ClusterIP {
					external(fe, kind)
				}
				change(fe)
			})
		}
	}
	return out
}

// sorts returns the changes by which a Frontend can differ from the simplest one.
func sorts(f model.Family) []func(fe *model.Frontend) {
	local := func(fe *model.Frontend, v model.Verdict) {
		if fe.Kind.External() {
			fe.LocalOnly, fe.Masquerade, fe.LocalVerdict = true, false, v
			if v == model.Forward {
				fe.LocalBackends = fe.Backends[:1]
			}
		}
	}
	return []func(fe *model.Frontend){
		func(fe *model.Frontend) { fe.Verdict, fe.Backends = model.Reject, nil },
		func(fe *model.Frontend) { fe.Verdict, fe.Backends = model.Drop, nil },
		func(fe *model.Frontend) { fe.AffinityTimeout = 3 * time.Hour },
		func(fe *model.Frontend) { fe.AffinityTimeout = 10 * time.Second; fe.ConsistentHash = true },
		func(fe *model.Frontend) { fe.ConsistentHash = true },
		func(fe *model.Frontend) { fe.Backends[0].Weight = 3 },
		func(fe *model.Frontend) { local(fe, model.Forward) },
		func(fe *model.Frontend) { local(fe, model.Drop); fe.AffinityTimeout = time.Hour },
		func(fe *model.Frontend) {
			if fe.Kind != model.ClusterIP {
				fe.Guarded = true
				fe.SourceRanges = []netip.Prefix{
					netip.MustParsePrefix(pick(f, "10.0.0.0/8", "fd00::/16")),
					netip.MustParsePrefix(pick(f, "203.0.113.7/32", "2001:db8:7::7/128"))}
			}
		},
	}
}

// tabulate sets the hash tables of a Frontend with consistent hashing.
func tabulate(fe *model.Frontend) {
	if !fe.ConsistentHash {
		return
	}
	table := func(list []model.Backend) model.HashTable {
		if len(list) == 0 {
			return nil
		}
		t := make(model.HashTable, 64)
		for i := range t {
			t[i] = uint16(i * 7 % len(list))
		}
		return t
	}
	fe.HashTable, fe.LocalHashTable = table(fe.Backends), table(fe.LocalBackends)
}

// Catalogue returns every case of Frontend of the families, one Service per case.
func Catalogue(families []model.Family) map[model.ServiceKey][]model.Frontend {
	out := map[model.ServiceKey][]model.Frontend{}
	for _, f := range families {
		for _, fe := range Every(f) {
			out[fe.Service] = append(out[fe.Service], fe)
		}
	}
	return out
}

// Mutate updates or deletes one random Service of a catalogue, as happens in clusters,
// and returns its key. An update changes its endpoints, its semantics, or both.
func Mutate(r *rand.Rand, services map[model.ServiceKey][]model.Frontend, families []model.Family) model.ServiceKey {
	i := r.IntN(len(Every(families[0])))
	key := Service(i)
	if r.IntN(6) == 0 {
		delete(services, key)
		return key
	}
	var now []model.Frontend
	for _, f := range families {
		fe := Every(f)[i]
		if r.IntN(4) == 0 {
			fe = ClusterIP(f, i, r.IntN(12))
		}
		if fe.Verdict == model.Forward {
			fe.Backends = Backends(f, i*16+r.IntN(4), 1+r.IntN(12))
			fe.Backends[0].Weight = uint16(1 + r.IntN(3))
			if len(fe.LocalBackends) > 0 {
				fe.LocalBackends = slices.Clone(fe.Backends[:1+r.IntN(len(fe.Backends))])
			}
			tabulate(&fe)
		}
		now = append(now, fe)
	}
	services[key] = now
	return key
}
