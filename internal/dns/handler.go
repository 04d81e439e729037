package dns

import (
	"context"

	"github.com/miekg/dns"
)

// query is one question that passed all checks.
type query struct {
	msg   *dns.Msg
	from  *asker
	name  string // lower case
	qtype uint16
	zone  zoneLabel
}

const headerSize = 12

// serve answers one packet. It never blocks: what has to wait is handed over.
// raw is valid only until it returns.
func (s *Server) serve(ctx context.Context, raw []byte, from *asker) {
	if len(raw) < headerSize || raw[2]&0x80 != 0 {
		s.metrics.dropped.WithLabelValues("no_query").Inc() // answering answers makes loops
		return
	}
	msg := new(dns.Msg)
	if err := msg.Unpack(raw); err != nil {
		s.refuseRaw(raw, from, dns.RcodeFormatError)
		return
	}
	q := &query{msg: msg, from: from}
	if rcode := check(msg); rcode != dns.RcodeSuccess {
		if len(msg.Question) > 0 {
			q.qtype = msg.Question[0].Qtype
		}
		q.zone = zoneOther
		s.reply(q, answer{rcode: rcode})
		return
	}
	q.name, q.qtype = lower(msg.Question[0].Name), msg.Question[0].Qtype
	s.dispatch(ctx, q)
}

// check gives the response code that ends a query before it is looked at.
func check(m *dns.Msg) int {
	switch {
	case m.Opcode != dns.OpcodeQuery:
		return dns.RcodeNotImplemented
	case len(m.Question) != 1 || len(m.Answer) > 0 || len(m.Ns) > 0:
		return dns.RcodeFormatError
	}
	if opt := m.IsEdns0(); opt != nil && opt.Version() != 0 {
		return dns.RcodeBadVers
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

// refuseRaw answers what cannot be parsed with its header alone.
func (s *Server) refuseRaw(raw []byte, from *asker, rcode int) {
	var b [headerSize]byte
	copy(b[:2], raw)
	b[2] = 0x80 | raw[2]&0x79 // QR, and the opcode and RD of the query
	b[3] = byte(rcode)
	s.metrics.count(zoneOther, 0, rcode)
	from.write(b[:])
}

// dispatch finds out whose name it is.
func (s *Server) dispatch(ctx context.Context, q *query) {
	switch {
	case s.zone.contains(q.name):
		q.zone = zoneCluster
		if !s.cfg.Store.Synced() {
			s.elsewhere(ctx, q, s.cluster)
			return
		}
		s.local(ctx, q)
		return
	case q.qtype == dns.TypePTR && s.cfg.Store.Synced():
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
	a := s.zone.resolve(q.name, q.qtype)
	switch {
	case a.chase != "":
		s.chase(ctx, q, a)
		return
	case a.miss != nil:
		now := s.cfg.Now()
		s.cfg.Store.misses.missed(a.miss.key, a.miss.host, now)
		if mayPark(q.qtype) && s.fresh() {
			if d := a.miss.park(s.cfg.Park, now); d > 0 && s.lot.add(q, a.miss.key, d) {
				s.again(q, false) // the name may have come between the look-up and add
				return
			}
		}
	}
	s.reply(q, a)
}

func (s *Server) fresh() bool { return s.cfg.Healthy == nil || s.cfg.Healthy() }

func mayPark(qtype uint16) bool {
	return qtype == dns.TypeA || qtype == dns.TypeAAAA || qtype == dns.TypeSRV
}

// again looks a parked query's name up once more and answers it if the name is
// there now, or if the waiting is over.
func (s *Server) again(q *query, over bool) {
	a := s.zone.resolve(q.name, q.qtype)
	if a.miss != nil && !over {
		return
	}
	result := released
	if a.rcode != dns.RcodeSuccess {
		result = expired
	}
	if s.lot.remove(q, result) {
		s.reply(q, a)
	}
}

// reply sends an answer of our own.
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
	s.send(q, m)
}

// echoCase gives a record the spelling of the question: clients that vary the
// case (draft-vixie-dnsext-dns0x20) want it back.
func echoCase(h *dns.RR_Header, q *query) {
	if h.Name == q.name {
		h.Name = q.msg.Question[0].Name
	}
}

// send packs, truncates and sends a message.
func (s *Server) send(q *query, m *dns.Msg) {
	if opt := q.msg.IsEdns0(); opt != nil {
		o := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		o.SetUDPSize(maxUDPAnswer)
		if opt.Do() {
			o.SetDo()
		}
		m.Extra = append(m.Extra, o)
	}
	m.Truncate(q.from.limit(q.msg))
	b, err := m.Pack()
	if err != nil {
		s.cfg.Log.Debug("cannot pack DNS answer", "name", q.name, "error", err)
		m = &dns.Msg{MsgHdr: m.MsgHdr, Question: m.Question}
		m.Rcode = dns.RcodeServerFailure
		if b, err = m.Pack(); err != nil {
			return
		}
	}
	s.metrics.count(q.zone, q.qtype, m.Rcode)
	q.from.write(b)
}
