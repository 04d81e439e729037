package dns

import (
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/fairlead/fairlead/internal/model"
)

// maxTargets is up to how many SRV targets the addresses are added: beyond, the
// message would be truncated anyway.
const maxTargets = 32

// lookup is a question for a name of one Service.
type lookup struct {
	key   model.ServiceKey
	view  *view
	name  string
	qtype uint16
}

// inServices answers for what is below svc.<zone>; rel lacks that.
func (z *zone) inServices(rel, name string, qtype uint16) answer {
	if rel == "" {
		return nodata()
	}
	rel, namespace := cutLast(rel)
	rest, service := cutLast(rel)
	if service == "" {
		if z.store.hasNamespace(namespace) {
			return nodata()
		}
		return nxdomain()
	}
	l := lookup{key: model.ServiceKey{Namespace: namespace, Name: service}, name: name, qtype: qtype}
	if l.view = z.store.view(l.key); l.view == nil {
		return nxdomain()
	}
	v := l.view
	if rest == StatusLabel {
		return z.status(l)
	}
	if v.kind == external {
		return z.alias(v, rest, name, qtype)
	}
	switch strings.Count(rest, ".") {
	case 0:
		if strings.HasPrefix(rest, "_") {
			return z.protocolNode(v, rest)
		}
		return z.host(l, rest)
	case 1:
		return z.service(l, rest)
	}
	return nxdomain()
}

// alias answers for an ExternalName Service: it has a CNAME and nothing below.
func (z *zone) alias(v *view, rest, name string, qtype uint16) answer {
	if rest != "" {
		return nxdomain()
	}
	cname := &dns.CNAME{Hdr: header(name, dns.TypeCNAME), Target: v.external}
	a := answer{rrs: []dns.RR{cname}}
	if qtype != dns.TypeCNAME && qtype != dns.TypeANY {
		a.chase = v.external
	}
	return a
}

// has tells whether a host, or with "" the Service itself, is published.
func (v *view) has(host string) bool {
	if host == "" {
		return !v.addrs.empty()
	}
	_, ok := v.hosts[host]
	return ok
}

// host answers for the Service's own name (host "") or one endpoint's.
func (z *zone) host(l lookup, host string) answer {
	a := l.view.addrs
	if host != "" {
		a = l.view.hosts[host]
	}
	if a.empty() {
		return missing(l, host)
	}
	return z.addresses(l.name, l.qtype, a)
}

// missing is the answer for a name that is not published: NXDOMAIN, also for a
// headless Service that has no ready endpoint (kubernetes/dns PR #245).
func missing(l lookup, host string) answer {
	a := nxdomain()
	if l.view.kind == headless {
		a.miss = &miss{key: l.key, host: host, view: l.view}
	}
	return a
}

// protocolNode answers for _tcp.<svc>: an empty non-terminal if SRV records are
// below it (RFC 8020).
func (z *zone) protocolNode(v *view, label string) answer {
	if v.speaks(label) {
		return nodata()
	}
	return nxdomain()
}

func protocolLabel(p model.Protocol) string { return "_" + strings.ToLower(p.String()) }

// service answers for _port._protocol.<svc>.
func (z *zone) service(l lookup, rest string) answer {
	port, proto, _ := strings.Cut(rest, ".")
	if len(port) < 2 || len(proto) < 2 || port[0] != '_' || proto[0] != '_' {
		return nxdomain()
	}
	protocol, ok := model.ParseProtocol(strings.ToUpper(proto[1:]))
	targets := l.view.targets(srvKey{port[1:], protocol})
	switch {
	case ok && len(targets) == 0 && l.view.addrs.empty():
		return missing(l, "")
	case !ok || len(targets) == 0:
		return nxdomain()
	case l.qtype == dns.TypeANY:
		return any1(l.name)
	case l.qtype != dns.TypeSRV:
		return nodata()
	}
	return z.targets(l, targets)
}

// targets lists SRV records. Weights are equal and add up to about 100, as
// CoreDNS has them; the specification leaves them open.
func (z *zone) targets(l lookup, list []target) answer {
	var out answer
	base := l.key.Name + "." + l.key.Namespace + ".svc" + z.suffix
	weight := max(1, 100/len(list))
	done := map[string]bool{}
	rotate(list, func(t target) {
		host, a := base, l.view.addrs
		if t.host != "" {
			host, a = t.host+"."+base, l.view.hosts[t.host]
		}
		out.rrs = append(out.rrs, &dns.SRV{Hdr: header(l.name, dns.TypeSRV), Weight: uint16(weight), Port: t.port, Target: host})
		if len(list) > maxTargets || done[host] {
			return
		}
		done[host] = true
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			out.extra = append(out.extra, z.addresses(host, qtype, a).rrs...)
		}
	})
	return out
}

// pointers answers a PTR query from the store. A reverse name that is not
// known is somebody else's, so "no" is no answer.
func (z *zone) pointers(name string) (answer, bool) {
	ip, ok := reverseAddr(name)
	if !ok {
		return answer{}, false
	}
	z.store.mu.RLock()
	list := z.store.reverse[ip]
	z.store.mu.RUnlock()
	var out answer
	for _, p := range list {
		target := p.key.Name + "." + p.key.Namespace + ".svc" + z.suffix
		if p.host != "" {
			target = p.host + "." + target
		}
		out.rrs = append(out.rrs, &dns.PTR{Hdr: header(name, dns.TypePTR), Ptr: target})
	}
	return out, len(list) > 0
}

// reverseAddr reads d.c.b.a.in-addr.arpa. and its IPv6 counterpart.
func reverseAddr(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		labels := strings.Split(rest, ".")
		if len(labels) != 4 {
			return netip.Addr{}, false
		}
		ip, err := netip.ParseAddr(labels[3] + "." + labels[2] + "." + labels[1] + "." + labels[0])
		return ip, err == nil
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa.")
	if !ok || len(rest) != 63 {
		return netip.Addr{}, false
	}
	var text strings.Builder
	for i := 62; i >= 0; i -= 2 {
		text.WriteByte(rest[i])
		if i%8 == 0 && i > 0 {
			text.WriteByte(':')
		}
		if i > 0 && rest[i-1] != '.' {
			return netip.Addr{}, false
		}
	}
	ip, err := netip.ParseAddr(text.String())
	return ip, err == nil
}

// park tells how long a query for a missing name may wait: not at all unless
// the name is expected (docs/headless.md lists the cases).
func (m *miss) park(limit time.Duration, now time.Time) time.Duration {
	v := m.view
	if asked := v.service.Extras.DNSPark; asked != nil {
		return min(*asked, MaxPark)
	}
	if limit <= 0 {
		return 0
	}
	expected := !v.created.IsZero() && now.Sub(v.created) < young
	if m.host == "" {
		expected = expected || len(v.notReady) > 0 || len(v.left) > 0
	} else {
		at, left := v.left[m.host]
		_, there := v.notReady[m.host]
		expected = expected || there || left && now.Sub(at) < memory
	}
	if !expected {
		return 0
	}
	return min(limit, MaxPark)
}
