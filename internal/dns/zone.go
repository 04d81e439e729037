package dns

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/fairlead/fairlead/internal/model"
)

// SchemaVersion is the version of the Kubernetes DNS specification that the
// records follow.
const SchemaVersion = "1.1.0"

// ttl of positive answers, seconds: the default of CoreDNS. Negative answers
// have 0, in the SOA's own TTL and in its MINIMUM (RFC 2308), so that nobody
// keeps them.
const ttl = 5

// zone makes the answers of the cluster domain.
type zone struct {
	origin  string // lower case FQDN, "cluster.local."
	suffix  string // ".cluster.local."
	servers []netip.Addr
	pods    bool
	store   *Store
}

func newZone(c *Config) *zone {
	z := &zone{origin: strings.ToLower(dns.Fqdn(c.Domain)), pods: c.PodRecords, store: c.Store}
	z.suffix = "." + z.origin
	for _, a := range c.Addrs {
		z.servers = append(z.servers, a.Addr())
	}
	return z
}

// answer is what a name and type come to.
type answer struct {
	rcode int
	rrs   []dns.RR
	extra []dns.RR
	soa   bool   // negative: say so with the zone's SOA
	chase string // CNAME target whose records the client needs too
	miss  *miss  // the name may be about to appear
}

// miss names what a negative answer was about, if that was a name of a
// headless Service.
type miss struct {
	key  model.ServiceKey
	host string
	view *view // of the moment of the look-up; never nil
}

func nodata() answer   { return answer{soa: true} }
func nxdomain() answer { return answer{rcode: dns.RcodeNameError, soa: true} }

// contains tells whether a lower-case FQDN is in the zone.
func (z *zone) contains(name string) bool {
	return name == z.origin || strings.HasSuffix(name, z.suffix)
}

// resolve answers for a lower-case FQDN in the zone.
func (z *zone) resolve(name string, qtype uint16) answer {
	if name == z.origin {
		return z.apex(qtype)
	}
	rel := strings.TrimSuffix(name, z.suffix)
	rest, last := cutLast(rel)
	switch last {
	case "svc":
		return z.inServices(rest, name, qtype)
	case "pod":
		if z.pods {
			return z.inPods(rest, name, qtype)
		}
	case "dns":
		switch rest {
		case "":
			return nodata()
		case "ns":
			return z.addresses(name, qtype, splitFamilies(z.servers))
		}
	case StatusLabel:
		if rest == "" {
			return only(qtype, &dns.TXT{Hdr: header(name, dns.TypeTXT), Txt: []string{"fairlead 1"}})
		}
	case "dns-version":
		if rest == "" {
			return only(qtype, &dns.TXT{Hdr: header(name, dns.TypeTXT), Txt: []string{SchemaVersion}})
		}
	}
	return nxdomain()
}

// cutLast splits "a.b.c" into "a.b" and "c".
func cutLast(s string) (rest, last string) {
	if i := strings.LastIndexByte(s, '.'); i >= 0 {
		return s[:i], s[i+1:]
	}
	return "", s
}

func (z *zone) apex(qtype uint16) answer {
	switch qtype {
	case dns.TypeSOA:
		soa := z.soa()
		soa.Hdr.Ttl = ttl
		return answer{rrs: []dns.RR{soa}}
	case dns.TypeNS:
		return answer{rrs: []dns.RR{&dns.NS{Hdr: header(z.origin, dns.TypeNS), Ns: "ns.dns." + z.origin}}}
	case dns.TypeANY:
		return any1(z.origin)
	}
	return nodata()
}

func (z *zone) soa() *dns.SOA {
	h := header(z.origin, dns.TypeSOA)
	h.Ttl = 0
	return &dns.SOA{Hdr: h, Ns: "ns.dns." + z.origin, Mbox: "hostmaster." + z.origin,
		Serial: z.store.serial.Load() + 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: 0}
}

func header(name string, rrtype uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: ttl}
}

// only answers for a name that has exactly one record.
func only(qtype uint16, rr dns.RR) answer {
	switch qtype {
	case rr.Header().Rrtype:
		return answer{rrs: []dns.RR{rr}}
	case dns.TypeANY:
		return any1(rr.Header().Name)
	}
	return nodata()
}

// any1 is RFC 8482's answer to ANY: something, instead of everything.
func any1(name string) answer {
	return answer{rrs: []dns.RR{&dns.HINFO{Hdr: header(name, dns.TypeHINFO), Cpu: "RFC8482"}}}
}

// addresses answers for a name that exists. The first record changes from query
// to query, because most clients take the first.
func (z *zone) addresses(name string, qtype uint16, a addrs) answer {
	var out answer
	switch qtype {
	case dns.TypeA:
		h := header(name, dns.TypeA)
		rotate(a.v4, func(ip netip.Addr) { out.rrs = append(out.rrs, &dns.A{Hdr: h, A: ip.AsSlice()}) })
	case dns.TypeAAAA:
		h := header(name, dns.TypeAAAA)
		rotate(a.v6, func(ip netip.Addr) { out.rrs = append(out.rrs, &dns.AAAA{Hdr: h, AAAA: ip.AsSlice()}) })
	case dns.TypeANY:
		return any1(name)
	}
	out.soa = len(out.rrs) == 0
	return out
}

func rotate[T any](list []T, f func(T)) {
	if len(list) == 0 {
		return
	}
	from := 0
	if len(list) > 1 {
		from = rand.IntN(len(list))
	}
	for i := range list {
		f(list[(from+i)%len(list)])
	}
}

func splitFamilies(list []netip.Addr) (a addrs) {
	for _, ip := range list {
		a.add(ip)
	}
	return a
}

// inPods answers for a-b-c-d.<ns>.pod (specification 1.0.1, dropped by 1.1.0):
// the name says its address, whether such a pod exists or not.
func (z *zone) inPods(rel, name string, qtype uint16) answer {
	host, namespace := cutLast(rel)
	if namespace == "" {
		return nodata()
	}
	if !z.store.hasNamespace(namespace) || strings.Contains(host, ".") {
		return nxdomain()
	}
	if host == "" {
		return nodata()
	}
	ip, err := netip.ParseAddr(strings.ReplaceAll(host, "-", "."))
	if err != nil {
		if ip, err = netip.ParseAddr(strings.ReplaceAll(host, "-", ":")); err != nil {
			return nxdomain()
		}
	}
	return z.addresses(name, qtype, splitFamilies([]netip.Addr{ip}))
}

func (s *Store) view(key model.ServiceKey) *view {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r := s.services[key]; r != nil {
		return r.view
	}
	return nil
}

func (s *Store) hasNamespace(name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.namespaces[name] > 0
}

// ClusterIPs gives the addresses of a Service; none if it is not known.
func (s *Store) ClusterIPs(key model.ServiceKey) []netip.Addr {
	if v := s.view(key); v != nil {
		return v.service.ClusterIPs
	}
	return nil
}

// Synced tells whether every source has delivered its first list.
func (s *Store) Synced() bool { return s.synced.Load() }

// young is how long after its creation a headless Service counts as expected.
const young = 2 * time.Minute
