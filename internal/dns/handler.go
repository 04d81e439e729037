package dns

import (
	"context"
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// query is one question that passed all checks.
type query struct {
	msg    *dns.Msg
	from   *asker
	client *client
	name   string // lower case
	qtype  uint16
	zone   zoneLabel
	status *StatusQuestion // what else is asked of a Service's status; nil for most queries
}

const headerSize = 12

// serve handles one packet. It never blocks: a query that has to wait is handed to
// another goroutine. raw is valid only until serve returns.
func (s *Server) serve(ctx context.Context, raw []byte, from *asker) {
	if len(raw) < headerSize || raw[2]&0x80 != 0 {
		s.metrics.dropped.WithLabelValues(dropNoQuery).Inc() // answering answers makes loops
		return
	}
	defer s.guard.catch(func() { s.refuseRaw(raw, from, dns.RcodeServerFailure) })
	c := s.admit(raw, from)
	if c == nil {
		return
	}
	msg := new(dns.Msg)
	if err := msg.Unpack(raw); err != nil {
		s.refuseRaw(raw, from, dns.RcodeFormatError)
		return
	}
	q := &query{msg: msg, from: from, client: c}
	if rcode := check(msg); rcode != dns.RcodeSuccess {
		if len(msg.Question) > 0 {
			q.qtype = msg.Question[0].Qtype
		}
		q.zone = zoneOther
		s.reply(q, answer{rcode: rcode})
		return
	}
	q.name, q.qtype = lower(msg.Question[0].Name), msg.Question[0].Qtype
	if q.qtype == dns.TypeTXT && strings.HasPrefix(q.name, StatusLabel+".") {
		q.status = statusQuestionOf(msg)
	}
	s.dispatch(ctx, q)
}

// admit returns the client that asks; nil if the query ends here. An address that may not
// ask gets REFUSED, in a message that is no longer than the question. A client above its
// rate limit gets no answer, because each answer would cost more than the question.
func (s *Server) admit(raw []byte, from *asker) *client {
	addr := from.client()
	c := s.clients.find(addr, from.intercepted)
	if c == nil {
		s.metrics.dropped.WithLabelValues(dropNotAllowed).Inc()
		s.stranger(addr)
		s.refuseRaw(raw, from, dns.RcodeRefused)
		return nil
	}
	if !s.clients.inRate(c) {
		s.metrics.dropped.WithLabelValues(dropRate).Inc()
		if from.tcp != nil { // every query of a connection holds a slot until it is answered
			s.refuseRaw(raw, from, dns.RcodeRefused)
		}
		return nil
	}
	return c
}

// stranger logs once which address was refused: either it is an attack, or the pods'
// addresses are not known and the operator has to configure them.
func (s *Server) stranger(addr netip.Addr) {
	s.toldStranger.Do(func() {
		s.cfg.Log.Warn("refused a DNS query: the client is neither this node nor one of its pods (by the Node's podCIDRs and --cluster-cidr); add other clients with --dns-allow. Further refusals are only counted (fairlead_dns_dropped_total)",
			"client", addr)
	})
}

// check returns the response code that rejects a query before its name is looked up.
func check(m *dns.Msg) int {
	switch {
	case m.Opcode != dns.OpcodeQuery:
		return dns.RcodeNotImplemented
	case len(m.Question) != 1 || len(m.Answer) > 0 || len(m.Ns) > 0:
		return dns.RcodeFormatError
	}
	if rcode := checkEDNS(m.Extra); rcode != dns.RcodeSuccess {
		return rcode
	}
	q := &m.Question[0]
	if q.Qclass != dns.ClassINET {
		return dns.RcodeRefused
	}
	switch q.Qtype {
	case dns.TypeAXFR, dns.TypeIXFR, dns.TypeMAILA, dns.TypeMAILB:
		return dns.RcodeRefused
	case dns.TypeNone, dns.TypeOPT, dns.TypeTSIG, dns.TypeTKEY:
		return dns.RcodeFormatError
	}
	return dns.RcodeSuccess
}

// checkEDNS reports FORMERR for more than one OPT record or one whose owner is not the root (RFC 6891 section 6.1.1), and
// BADVERS for a version above 0.
func checkEDNS(extra []dns.RR) int {
	seen, rcode := false, dns.RcodeSuccess
	for _, rr := range extra {
		opt, ok := rr.(*dns.OPT)
		if !ok {
			continue
		}
		if seen || opt.Hdr.Name != "." {
			return dns.RcodeFormatError
		}
		if seen = true; opt.Version() != 0 {
			rcode = dns.RcodeBadVers
		}
	}
	return rcode
}

// refuseRaw answers a query with its header alone. It is for a query that cannot be parsed,
// or need not be.
func (s *Server) refuseRaw(raw []byte, from *asker, rcode int) {
	var b [headerSize]byte
	copy(b[:2], raw)
	b[2] = 0x80 | raw[2]&0x79 // QR, and the opcode and RD of the query
	b[3] = byte(rcode)
	s.metrics.count(zoneOther, 0, rcode)
	from.write(b[:])
}

// refuse answers a query that was understood with a header alone.
func (s *Server) refuse(q *query, rcode int) {
	var head [headerSize]byte
	binary.BigEndian.PutUint16(head[:2], q.msg.Id)
	s.refuseRaw(head[:], q.from, rcode)
}

// dispatch chooses what answers the name: the cluster domain, the reverse zones or another server.
func (s *Server) dispatch(ctx context.Context, q *query) {
	switch {
	case s.zone.contains(q.name):
		q.zone = zoneCluster
		if s.knowsCluster() || s.knowsName(q) {
			s.local(ctx, q)
			return
		}
		s.elsewhere(ctx, q, s.cluster)
		return
	case q.qtype == dns.TypePTR && s.cfg.Store.Listed():
		if a, ok := s.zone.pointers(q.name); ok {
			q.zone = zoneReverse
			s.reply(q, a)
			return
		}
	}
	q.zone = zoneOther
	s.elsewhere(ctx, q, s.forward)
}

// local answers a name of the cluster domain, or parks the query.
func (s *Server) local(ctx context.Context, q *query) {
	a := s.resolve(q)
	switch {
	case a.chase != "":
		s.chase(ctx, q, a)
		return
	case a.miss != nil:
		if s.parks(q, a.miss) {
			return
		}
	}
	s.reply(q, a)
}

// resolve looks up a query's name, building no more records than the client takes.
func (s *Server) resolve(q *query) answer {
	return s.zone.resolve(lookup{name: q.name, qtype: q.qtype, room: q.from.limit(q.msg), status: q.status, client: q.from.client()})
}

// parks lets a query wait for its name, if the name is expected. It reports whether it
// did; the query may then have been answered already.
func (s *Server) parks(q *query, m *miss) bool {
	now := s.cfg.Now()
	wait := m.wait
	if q.status == nil {
		s.cfg.Store.misses.missed(m.key, m.host, now)
		wait = m.park(s.cfg.Park, now)
	}
	if wait <= 0 || !mayPark(q) || !s.fresh() || !s.parking.add(q, m.key, wait) {
		return false
	}
	s.retry(q, false) // the name may have been published between the lookup and add
	return true
}

func (s *Server) fresh() bool { return s.cfg.Healthy == nil || s.cfg.Healthy() }

func mayPark(q *query) bool {
	return q.qtype == dns.TypeA || q.qtype == dns.TypeAAAA || q.qtype == dns.TypeSRV || q.status != nil
}

// retry repeats the lookup of a parked query. It answers the query if the name is
// published now, or if the wait has timed out.
func (s *Server) retry(q *query, timedOut bool) {
	defer s.guard.catch(func() {
		if s.parking.remove(q, cancelled) {
			s.refuse(q, dns.RcodeServerFailure)
		}
	})
	a := s.resolve(q)
	if a.miss != nil && !timedOut {
		return
	}
	result := released
	if a.miss != nil || a.rcode != dns.RcodeSuccess {
		result = expired
	}
	if s.parking.remove(q, result) {
		s.reply(q, a)
	}
}

// reply sends an answer of this server.
func (s *Server) reply(q *query, a answer) {
	m := new(dns.Msg)
	m.SetReply(q.msg)
	m.Rcode = a.rcode
	m.RecursionAvailable = true
	m.Authoritative = q.zone != zoneOther
	m.Compress = true
	m.Answer, m.Extra = a.rrs, a.extra
	if a.soa {
		m.Ns = []dns.RR{s.zone.soa()}
	}
	for _, rr := range m.Answer {
		echoCase(rr.Header(), q)
	}
	s.send(q, m, a.cut)
}

// echoCase sets a record's owner to the spelling of the question: clients that vary the
// case (draft-vixie-dnsext-dns0x20) expect it back.
func echoCase(h *dns.RR_Header, q *query) {
	if h.Name == q.name {
		h.Name = q.msg.Question[0].Name
	}
}

// send packs, truncates and sends a message; cut reports that records are missing already.
func (s *Server) send(q *query, m *dns.Msg, cut bool) {
	if opt := q.msg.IsEdns0(); opt != nil {
		o := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		o.SetUDPSize(maxUDPAnswer)
		if opt.Do() {
			o.SetDo()
		}
		m.Extra = append(m.Extra, o)
	}
	m.Truncate(q.from.limit(q.msg))
	m.Truncated = m.Truncated || cut
	b, err := m.Pack()
	if err != nil {
		s.cfg.Log.Debug("cannot pack a DNS response", "name", q.name, "error", err)
		m = &dns.Msg{MsgHdr: m.MsgHdr, Question: m.Question}
		m.Rcode = dns.RcodeServerFailure
		if b, err = m.Pack(); err != nil {
			return
		}
	}
	s.metrics.count(q.zone, q.qtype, m.Rcode)
	q.from.write(b)
}
