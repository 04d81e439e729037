package dns

import (
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
// have 0, in the SOA's own TTL and in its MINIMUM (RFC 2308), so that no resolver
// caches them.
const ttl = 5

// zone makes the answers of the cluster domain.
type zone struct {
	origin       string // lower case FQDN, "cluster.local."
	suffix       string // ".cluster.local."
	servers      *families
	pods         bool
	statusForAll bool
	store        *Store
}

func newZone(c *Config) *zone {
	z := &zone{origin: strings.ToLower(dns.Fqdn(c.Domain)), pods: c.PodRecords, statusForAll: c.StatusForAll, store: c.Store, servers: &families{}}
	z.suffix = "." + z.origin
	for _, a := range c.Addrs {
		z.servers.of(a.Addr()).add(a.Addr())
	}
	return z
}

// lookup is one question for a name of the zone.
type lookup struct {
	name   string // lower case FQDN
	qtype  uint16
	room   int             // bytes that the client takes
	status *StatusQuestion // see StatusLabel; nil for most queries
	client netip.Addr      // the client's address; it matters for a status only

	key    model.ServiceKey
	record *record // of key, while Store.mu is held
}

// answer is the result of a lookup of a name and type.
type answer struct {
	rcode int
	rrs   []dns.RR
	extra []dns.RR
	cut   bool   // there are more records than the client has room for
	soa   bool   // negative: the answer carries the zone's SOA
	chase string // CNAME target whose records the client needs too
	miss  *miss  // the name may be about to appear
}

func nodata() answer   { return answer{soa: true} }
func nxdomain() answer { return answer{rcode: dns.RcodeNameError, soa: true} }

// contains reports whether a lower-case FQDN is in the zone.
func (z *zone) contains(name string) bool {
	return name == z.origin || strings.HasSuffix(name, z.suffix)
}

// resolve answers for a lower-case FQDN in the zone.
func (z *zone) resolve(l lookup) answer {
	if l.name == z.origin {
		return z.apex(l.qtype)
	}
	rest, last := cutLast(strings.TrimSuffix(l.name, z.suffix))
	switch last {
	case "svc":
		return z.inServices(l, rest)
	case "pod":
		if z.pods {
			return z.inPods(l, rest)
		}
	case "dns":
		switch rest {
		case "":
			return nodata()
		case "ns":
			return addressRecords(&l, l.name, z.servers)
		}
	case StatusLabel:
		if rest == "" {
			return singleRecord(l.qtype, &dns.TXT{Hdr: header(l.name, dns.TypeTXT), Txt: []string{"fairlead 2"}})
		}
	case "dns-version":
		if rest == "" {
			return singleRecord(l.qtype, &dns.TXT{Hdr: header(l.name, dns.TypeTXT), Txt: []string{SchemaVersion}})
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
		return minimalANY(z.origin)
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

// singleRecord answers for a name that has exactly one record.
func singleRecord(qtype uint16, rr dns.RR) answer {
	switch qtype {
	case rr.Header().Rrtype:
		return answer{rrs: []dns.RR{rr}}
	case dns.TypeANY:
		return minimalANY(rr.Header().Name)
	}
	return nodata()
}

// minimalANY is RFC 8482's answer to ANY: something, instead of everything.
func minimalANY(name string) answer {
	return answer{rrs: []dns.RR{&dns.HINFO{Hdr: header(name, dns.TypeHINFO), Cpu: "RFC8482"}}}
}

// inPods answers for a-b-c-d.<ns>.pod (specification 1.0.1, dropped by 1.1.0) as
// CoreDNS's "pods insecure" does, which is what kubeadm configures: the name contains
// its address, whether such a pod exists or not. Namespaces without a Service are
// not known here, so every namespace is assumed to exist.
func (z *zone) inPods(l lookup, rel string) answer {
	name, namespace := cutLast(rel)
	if namespace == "" {
		return nodata()
	}
	if strings.Contains(name, ".") {
		return nxdomain()
	}
	if name == "" {
		return nodata()
	}
	ip, err := netip.ParseAddr(strings.ReplaceAll(name, "-", "."))
	if err != nil {
		if ip, err = netip.ParseAddr(strings.ReplaceAll(name, "-", ":")); err != nil {
			return nxdomain()
		}
	}
	return addressRecords(&l, l.name, familiesOf(ip))
}

// young is how long after its creation a headless Service counts as expected.
const young = 2 * time.Minute
