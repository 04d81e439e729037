package dns

import (
	"fmt"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// StatusLabel is the label below a Service's name whose TXT records say what
// this node knows of the Service. Specification 1.1.0 section 3 permits such
// extensions, and no host or Service can begin with "_". It is for `fairlead
// wait` and says no more than the A records plus the endpoints not yet ready.
const StatusLabel = "_status"

// status answers <StatusLabel>.<svc>.<ns>.svc.<zone> TXT: one record
// "fairlead 1 kind=… published=… waiting=…", and one for each endpoint,
// "endpoint host=… addr=… state=ready|notready|left".
func (z *zone) status(v *view, name string, qtype uint16) answer {
	if qtype != dns.TypeTXT {
		return nodata()
	}
	h := header(name, dns.TypeTXT)
	h.Ttl = 0
	var out answer
	say := func(format string, args ...any) {
		out.rrs = append(out.rrs, &dns.TXT{Hdr: h, Txt: []string{fmt.Sprintf(format, args...)}})
	}
	published := len(v.addrs.v4) + len(v.addrs.v6)
	if v.kind == clusterIP {
		published = 0 // endpoints are not DNS's business then
	}
	say("fairlead 1 kind=%s published=%d waiting=%d", v.kind, published, len(v.notReady))
	for _, host := range sortedKeys(v.hosts) {
		a := v.hosts[host]
		for _, ip := range append(slices.Clone(a.v4), a.v6...) {
			say("endpoint host=%s addr=%s state=ready", host, ip)
		}
	}
	for _, host := range sortedKeys(v.notReady) {
		for _, ip := range v.notReady[host] {
			say("endpoint host=%s addr=%s state=notready", host, ip)
		}
	}
	for _, host := range sortedKeys(v.left) {
		say("endpoint host=%s state=left", host)
	}
	for _, p := range ports(v) {
		say("port %s", p)
	}
	return out
}

func ports(v *view) (list []string) {
	for _, p := range v.service.Ports {
		list = append(list, fmt.Sprintf("name=%s port=%d protocol=%s", p.Name, p.Port, p.Protocol))
	}
	return list
}

func sortedKeys[V any](m map[string]V) []string {
	list := make([]string, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// ParseStatus reads one TXT record of a status answer into its first word and
// its key=value fields.
func ParseStatus(txt []string) (what string, fields map[string]string) {
	fields = map[string]string{}
	for i, word := range strings.Fields(strings.Join(txt, "")) {
		if key, value, ok := strings.Cut(word, "="); ok {
			fields[key] = value
		} else if i == 0 {
			what = word
		}
	}
	return what, fields
}
