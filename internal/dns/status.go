package dns

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/fairlead/fairlead/internal/model"
)

// StatusLabel is the label below a Service's name whose TXT records say what
// this node knows of the Service, and below the cluster domain whose TXT record
// says that the server is Fairlead's. Specification 1.1.0 section 3 permits such
// extensions, and no host or Service can begin with "_". It is for `fairlead
// wait`, and says no more than the A records plus the endpoints not yet ready.
const StatusLabel = "_status"

// Endpoint states in a status.
const (
	StateReady    = "ready"
	StateNotReady = "notready"
	StateLeft     = "left" // was published in the last ten minutes
)

// status answers <StatusLabel>.<svc>.<ns>.svc.<zone> TXT: one record
// "fairlead 1 kind=…", and one "endpoint host=… addr=… state=…" each.
func (z *zone) status(l lookup) answer {
	if l.qtype != dns.TypeTXT {
		return nodata()
	}
	h := header(l.name, dns.TypeTXT)
	h.Ttl = 0
	var out answer
	say := func(format string, args ...any) {
		out.rrs = append(out.rrs, &dns.TXT{Hdr: h, Txt: []string{fmt.Sprintf(format, args...)}})
	}
	say("fairlead 1 kind=%s", l.view.kind)
	seen := map[string]bool{}
	for _, sl := range z.store.slicesOf(l.key) {
		for i := range sl.Endpoints {
			e := &sl.Endpoints[i]
			state := StateNotReady
			if e.Ready {
				state = StateReady
			}
			line := fmt.Sprintf("endpoint host=%s addr=%s state=%s", hostOf(e), e.Addr, state)
			if !seen[line] {
				seen[line] = true
				say("%s", line)
			}
		}
	}
	for _, host := range l.view.leftNames() {
		say("endpoint host=%s state=%s", host, StateLeft)
	}
	return out
}

func (v *view) leftNames() (names []string) {
	for name, at := range v.left {
		if time.Since(at) < memory {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (s *Store) slicesOf(key model.ServiceKey) []*model.Slice {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r := s.services[key]; r != nil {
		return slices.Clone(r.slices)
	}
	return nil
}

// ParseStatus reads one TXT record of a status into its first word and its
// key=value fields.
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
