package dns

import (
	"math/rand/v2"
	"strings"

	"github.com/miekg/dns"

	"github.com/fairlead/fairlead/internal/model"
)

// Sizes of records in a message, in bytes. Only as many records are built as the
// client takes: a Service may have thousands.
const (
	optSize     = 11
	ownerSize   = 2 + 10 // of a record whose owner is the question's name: a pointer; then type, class, TTL, length
	aSize       = ownerSize + 4
	aaaaSize    = ownerSize + 16
	srvSize     = ownerSize + 6 + 2 // and the target's name, which is not compressed
	questionEnd = 1 + 4             // the root label, type, class
)

// space is how many bytes of records fit.
func (l *lookup) space() int {
	return max(0, l.room-headerSize-len(l.name)-questionEnd-optSize)
}

// addressRecords answers for a name that exists. The first record changes from query
// to query, because most clients take the first.
func addressRecords(l *lookup, name string, f *families) answer {
	var out answer
	switch l.qtype {
	case dns.TypeA:
		out = aRecords(name, &f.v4, l.space()/aSize)
	case dns.TypeAAAA:
		out = aaaaRecords(name, &f.v6, l.space()/aaaaSize)
	case dns.TypeANY:
		return minimalANY(name)
	}
	out.soa = len(out.rrs) == 0 && !out.cut
	return out
}

func aRecords(name string, set *addrSet, most int) answer {
	n := min(set.len(), most)
	if n == 0 {
		return answer{cut: set.len() > 0}
	}
	h := header(name, dns.TypeA)
	list, bytes, out := make([]dns.A, n), make([]byte, 4*n), make([]dns.RR, n)
	for i, a := range fromAnywhere(set.list, n) {
		four := a.addr.As4()
		list[i] = dns.A{Hdr: h, A: append(bytes[4*i:4*i:4*i+4], four[:]...)}
		out[i] = &list[i]
	}
	return answer{rrs: out, cut: n < set.len()}
}

func aaaaRecords(name string, set *addrSet, most int) answer {
	n := min(set.len(), most)
	if n == 0 {
		return answer{cut: set.len() > 0}
	}
	h := header(name, dns.TypeAAAA)
	list, bytes, out := make([]dns.AAAA, n), make([]byte, 16*n), make([]dns.RR, n)
	for i, a := range fromAnywhere(set.list, n) {
		sixteen := a.addr.As16()
		list[i] = dns.AAAA{Hdr: h, AAAA: append(bytes[16*i:16*i:16*i+16], sixteen[:]...)}
		out[i] = &list[i]
	}
	return answer{rrs: out, cut: n < set.len()}
}

// fromAnywhere returns n elements of a list, beginning at a random one and wrapping round.
func fromAnywhere[T any](list []T, n int) func(func(int, T) bool) {
	return func(yield func(int, T) bool) {
		from := 0
		if len(list) > 1 {
			from = rand.IntN(len(list))
		}
		for i := range n {
			if !yield(i, list[(from+i)%len(list)]) {
				return
			}
		}
	}
}

type srvKey struct {
	port     string
	protocol model.Protocol
}

// target is one SRV record; host "" means the Service's own name.
type target struct {
	host string
	port uint16
}

// targets returns up to most different targets of the port, and whether there are
// more. It begins at a random one.
func (r *record) targets(k srvKey, most int) (list []target, more bool) {
	if r.kind() == clusterIP {
		for _, p := range r.service.Ports {
			if p.Name == k.port && p.Protocol == k.protocol && !r.addrs.empty() {
				return []target{{"", p.Port}}, false
			}
		}
		return nil, false
	}
	seen := map[target]struct{}{}
	for _, sl := range fromAnywhere(r.slices, len(r.slices)) {
		for _, p := range sl.Ports {
			if p.Name != k.port || p.Name == "" || p.Protocol != k.protocol {
				continue
			}
			for _, e := range fromAnywhere(sl.Endpoints, len(sl.Endpoints)) {
				if !e.Ready {
					continue
				}
				t := target{hostOf(&e), p.Port}
				if _, ok := seen[t]; ok {
					continue
				}
				if len(list) == most {
					return list, true
				}
				seen[t] = struct{}{}
				list = append(list, t)
			}
		}
	}
	return list, false
}

// speaks reports whether the record has an SRV record of the protocol.
func (r *record) speaks(label string) bool {
	if r.kind() == clusterIP {
		for _, p := range r.service.Ports {
			if p.Name != "" && protocolLabel(p.Protocol) == label {
				return true
			}
		}
		return false
	}
	for _, sl := range r.slices {
		for _, p := range sl.Ports {
			if p.Name != "" && protocolLabel(p.Protocol) == label && sliceReady(sl) {
				return true
			}
		}
	}
	return false
}

func sliceReady(sl *model.Slice) bool {
	for i := range sl.Endpoints {
		if sl.Endpoints[i].Ready {
			return true
		}
	}
	return false
}

func protocolLabel(p model.Protocol) string { return "_" + strings.ToLower(p.String()) }

// srvRecords lists the targets that fit, with their addresses while they are few.
func (z *zone) srvRecords(l *lookup, list []target, more bool) answer {
	out := answer{cut: more}
	base := l.key.Name + "." + l.key.Namespace + ".svc" + z.suffix
	weight := max(1, 100/len(list)) // equal weights that add up to about 100, as CoreDNS has them
	left := l.space()
	done := map[string]bool{}
	for _, t := range list {
		name, addrs := base, &l.record.addrs
		if t.host != "" {
			name = t.host + "." + base
			if h := l.record.hosts[t.host]; h != nil {
				addrs = &h.ready
			}
		}
		if left -= srvSize + len(name); left < 0 {
			out.cut = true
			break
		}
		out.rrs = append(out.rrs, &dns.SRV{Hdr: header(l.name, dns.TypeSRV), Weight: uint16(weight), Port: t.port, Target: name})
		if len(list) > maxTargets || done[name] {
			continue
		}
		done[name] = true
		out.extra = append(out.extra, aRecords(name, &addrs.v4, maxTargets).rrs...)
		out.extra = append(out.extra, aaaaRecords(name, &addrs.v6, maxTargets).rrs...)
	}
	return out
}

// mostTargets returns how many targets are worth collecting for a client: as many as
// fit if names were as short as possible.
func (l *lookup) mostTargets() int {
	shortest := srvSize + len(l.key.Name) + len(l.key.Namespace)
	return l.space()/shortest + 1
}
