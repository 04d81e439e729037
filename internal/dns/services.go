package dns

import (
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/fairlead/fairlead/internal/model"
)

// maxTargets is up to how many SRV targets the addresses are added: beyond, the
// message would be truncated anyway.
const maxTargets = 32

// inServices answers for what is below svc.<zone>; rel lacks that.
func (z *zone) inServices(l lookup, rel string) answer {
	if rel == "" {
		return nodata()
	}
	rel, namespace := cutLast(rel)
	rest, service := cutLast(rel)
	z.store.mu.RLock()
	defer z.store.mu.RUnlock()
	if service == "" {
		if z.store.namespaces[namespace] > 0 {
			return nodata()
		}
		return nxdomain()
	}
	l.key = model.ServiceKey{Namespace: namespace, Name: service}
	l.record = z.store.services[l.key]
	if rest == StatusLabel {
		return z.serviceStatus(&l)
	}
	switch l.record.kind() {
	case noService:
		return nxdomain()
	case external:
		return z.alias(&l, rest)
	}
	switch strings.Count(rest, ".") {
	case 0:
		if strings.HasPrefix(rest, "_") {
			return protocolNode(l.record, rest)
		}
		return hostAddresses(&l, rest)
	case 1:
		return z.servicePort(&l, rest)
	}
	return nxdomain()
}

// alias answers for an ExternalName Service: it has a CNAME and nothing below.
func (z *zone) alias(l *lookup, rest string) answer {
	if rest != "" {
		return nxdomain()
	}
	to := strings.ToLower(l.record.service.ExternalName) + "."
	a := answer{rrs: []dns.RR{&dns.CNAME{Hdr: header(l.name, dns.TypeCNAME), Target: to}}}
	if l.qtype != dns.TypeCNAME && l.qtype != dns.TypeANY {
		a.chase = to
	}
	return a
}

// hostAddresses answers for the Service's own name (name "") or one endpoint's.
func hostAddresses(l *lookup, name string) answer {
	f := &l.record.addrs
	switch {
	case name == "":
	case l.record.kind() == clusterIP:
		f = l.record.podsNamed(name)
	default:
		h := l.record.hosts[name]
		if h == nil {
			return missing(l, name)
		}
		f = &h.ready
	}
	if f.empty() {
		return missing(l, name)
	}
	return addressRecords(l, l.name, f)
}

// miss is what a negative answer was about, if that was a name of a headless
// Service, and the state of the name.
type miss struct {
	key     model.ServiceKey
	host    string
	asked   *time.Duration // the Service's annotation
	created time.Time
	waiting bool          // there is an endpoint of the name that is not ready
	left    time.Time     // when the name was published last; zero if never
	wait    time.Duration // of a status: how long its question may wait
}

// missing returns the answer for a name that is not published: NXDOMAIN, also for a
// headless Service that has no ready endpoint (kubernetes/dns PR #245).
func missing(l *lookup, name string) answer {
	a, r := nxdomain(), l.record
	if r.kind() != headless {
		return a
	}
	a.miss = &miss{key: l.key, host: name, asked: r.service.Extras.DNSPark, created: r.created}
	if name == "" {
		a.miss.waiting, a.miss.left = r.waiting > 0, r.leftAt
		return a
	}
	h := r.hosts[name]
	a.miss.waiting, a.miss.left = h != nil && h.waiting > 0, r.left[name]
	return a
}

// protocolNode answers for _tcp.<svc>: an empty non-terminal if SRV records are
// below it (RFC 8020).
func protocolNode(r *record, label string) answer {
	if r.speaks(label) {
		return nodata()
	}
	return nxdomain()
}

// servicePort answers for _port._protocol.<svc>.
func (z *zone) servicePort(l *lookup, rest string) answer {
	port, proto, _ := strings.Cut(rest, ".")
	if len(port) < 2 || len(proto) < 2 || port[0] != '_' || proto[0] != '_' {
		return nxdomain()
	}
	protocol, ok := model.ParseProtocol(strings.ToUpper(proto[1:]))
	if !ok {
		return nxdomain()
	}
	if l.record.addrs.empty() {
		return missing(l, "")
	}
	targets, more := l.record.targets(srvKey{port[1:], protocol}, l.mostTargets())
	switch {
	case len(targets) == 0:
		return nxdomain()
	case l.qtype == dns.TypeANY:
		return minimalANY(l.name)
	case l.qtype != dns.TypeSRV:
		return nodata()
	}
	return z.srvRecords(l, targets, more)
}

// park reports how long a query for a missing name may wait: not at all unless
// the name is expected (docs/headless.md lists the cases).
func (m *miss) park(limit time.Duration, now time.Time) time.Duration {
	if m.asked != nil {
		return min(*m.asked, MaxPark)
	}
	recently := func(at time.Time, d time.Duration) bool { return !at.IsZero() && now.Sub(at) < d }
	if limit <= 0 || !m.waiting && !recently(m.created, young) && !recently(m.left, memory) {
		return 0
	}
	return min(limit, MaxPark)
}
