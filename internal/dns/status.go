package dns

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// StatusLabel is the label below a Service's name whose TXT records report the state of
// the Service on this node, and below the cluster domain whose TXT record
// reports that the server is Fairlead's. Specification 1.1.0 section 3 permits such
// extensions, and no host or Service can begin with "_". It is for `fairlead
// wait`.
//
// What public DNS shows of the Service (how many endpoints are ready, and which)
// is reported to all clients. Which endpoints are not ready, and which were removed, is
// reported only to the node itself and to those of its pods that are endpoints in the
// Service's namespace, unless Config.StatusForAll is set.
const StatusLabel = "_status"

// StatusOption is the EDNS option of a status query that carries a question; see
// StatusQuestion. The code is of the range for local use (RFC 6891).
const StatusOption = 65434

// Endpoint states in a status.
const (
	StateReady    = "ready"
	StateNotReady = "notready"
	StateLeft     = "left"   // was published in the last ten minutes
	StateAbsent   = "absent" // is in no EndpointSlice
	StateUntold   = "untold" // is not published, and the asker may not know more
)

// Bounds of a status. The answer's length does not depend on how many endpoints
// the Service has.
const (
	MaxStatusWait  = 8 * time.Second // shorter than the idle time-out of a connection
	maxStatusHosts = 4096            // that are asked for
	maxStatusLines = 50              // endpoints that are missing
	statusPage     = 400             // endpoints that are ready, if they are asked for
)

// StatusQuestion is what the asker wants to know: whether so many pods are ready,
// and these hostnames. The server answers when that holds or Wait is over.
type StatusQuestion struct {
	Pods  int
	Hosts []string
	Wait  time.Duration
	List  bool // also the endpoints that are ready, a page of them beginning at From
	From  int
}

// Option packs the question.
func (s *StatusQuestion) Option() *dns.EDNS0_LOCAL {
	text := fmt.Sprintf("pods=%d wait=%s hosts=%s", s.Pods, s.Wait, strings.Join(s.Hosts, ","))
	if s.List {
		text += fmt.Sprintf(" from=%d", s.From)
	}
	return &dns.EDNS0_LOCAL{Code: StatusOption, Data: []byte(text)}
}

// statusQuestionOf returns the question of a status query. A question that cannot be read is
// ignored.
func statusQuestionOf(m *dns.Msg) *StatusQuestion {
	opt := m.IsEdns0()
	if opt == nil {
		return nil
	}
	for _, o := range opt.Option {
		local, ok := o.(*dns.EDNS0_LOCAL)
		if !ok || local.Code != StatusOption {
			continue
		}
		_, fields := ParseStatus([]string{string(local.Data)})
		q := &StatusQuestion{}
		q.Pods, _ = strconv.Atoi(fields["pods"])
		q.Wait, _ = time.ParseDuration(fields["wait"])
		q.Wait = min(q.Wait, MaxStatusWait)
		if from, err := strconv.Atoi(fields["from"]); err == nil && from >= 0 {
			q.List, q.From = true, from
		}
		if hosts := fields["hosts"]; hosts != "" {
			q.Hosts = strings.Split(lower(hosts), ",")
			q.Hosts = q.Hosts[:min(len(q.Hosts), maxStatusHosts)]
		}
		return q
	}
	return nil
}

// statusWriter adds lines to a status for as long as there is room.
type statusWriter struct {
	out  answer
	name string
	left int
}

func (w *statusWriter) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if w.left -= ownerSize + 1 + len(text); w.left < 0 {
		w.out.cut = true
		return
	}
	h := header(w.name, dns.TypeTXT)
	h.Ttl = 0
	w.out.rrs = append(w.out.rrs, &dns.TXT{Hdr: h, Txt: []string{text}})
}

// serviceStatus answers <StatusLabel>.<svc>.<ns>.svc.<zone> TXT: one record
// "fairlead 2 kind=… pods=… complete=…", and one "endpoint host=… addr=… state=…"
// for each of the first that are missing, and for each that is listed.
func (z *zone) serviceStatus(l *lookup) answer {
	r := l.record
	q := l.status
	if q == nil {
		q = &StatusQuestion{}
	}
	if r.kind() == noService {
		a := nxdomain()
		if q.Wait > 0 {
			a.miss = &miss{key: l.key, wait: q.Wait}
		}
		return a
	}
	if l.qtype != dns.TypeTXT {
		return nodata()
	}
	c := r.count()
	missing := r.missingHosts(q, c)
	complete := len(c.ready) > 0 && c.readyPods >= q.Pods && len(missing) == 0
	w := &statusWriter{name: l.name, left: l.space()}
	told := z.mayKnow(l)
	w.say("fairlead 2 kind=%s pods=%d endpoints=%d complete=%t told=%t%s", r.kind(), c.readyPods, len(c.ready), complete, told, c.unready(told))
	for _, m := range missing[:min(len(missing), maxStatusLines)] {
		w.say("endpoint host=%s state=%s%s", m.Host, r.state(m, told), addrField(m, told))
	}
	if told && (q.Pods > c.readyPods || l.status == nil) {
		c.unreadyBut(missing, w)
	}
	if q.List {
		c.list(w, q.From)
	}
	if !complete && q.Wait > 0 {
		w.out.miss = &miss{key: l.key, wait: q.Wait}
	}
	return w.out
}

// unreadyBut writes the first endpoints that are not ready and not in missing.
func (c *census) unreadyBut(missing []Member, w *statusWriter) {
	for _, m := range c.waiting[:min(len(c.waiting), maxStatusLines)] {
		if !slices.ContainsFunc(missing, func(o Member) bool { return o.Host == m.Host }) {
			w.say("endpoint host=%s addr=%s state=%s", m.Host, m.Addr, StateNotReady)
		}
	}
}

func (c *census) unready(told bool) string {
	if !told {
		return ""
	}
	return fmt.Sprintf(" notready=%d", c.waitingPods)
}

// missingHosts returns the hostnames that are asked for and not ready.
func (r *record) missingHosts(q *StatusQuestion, c *census) (list []Member) {
	for _, h := range q.Hosts {
		m, ok := c.hosts[h]
		if !ok {
			m = Member{Host: h}
		}
		if !m.Ready {
			list = append(list, m)
		}
	}
	return list
}

// state returns why a hostname is not published.
func (r *record) state(m Member, told bool) string {
	switch {
	case !told:
		return StateUntold
	case m.Addr.IsValid():
		return StateNotReady
	case time.Since(r.left[m.Host]) < memory:
		return StateLeft
	}
	return StateAbsent
}

func addrField(m Member, told bool) string {
	if !told || !m.Addr.IsValid() {
		return ""
	}
	return " addr=" + m.Addr.String()
}

// list writes one page of the endpoints that are ready, and where the next begins.
func (c *census) list(w *statusWriter, from int) {
	from = min(from, len(c.ready))
	to := min(from+statusPage, len(c.ready))
	for _, m := range c.ready[from:to] {
		w.say("endpoint host=%s addr=%s state=%s", m.Host, m.Addr, StateReady)
	}
	if to < len(c.ready) {
		w.say("more from=%d", to)
	}
}

// mayKnow reports whether the asker may know what public DNS does not show.
func (z *zone) mayKnow(l *lookup) bool {
	near := &z.store.locals // Store.mu is held
	_, own := near.own[l.client]
	return z.statusForAll || own || l.client.IsLoopback() || near.pods[l.client][l.key.Namespace] > 0
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
