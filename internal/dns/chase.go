package dns

import (
	"context"

	"github.com/miekg/dns"
)

// maxChase bounds ExternalName Services that point at each other.
const maxChase = 8

// chase answers with a CNAME and the records of its target: a pod's resolver does not
// follow it by itself.
func (s *Server) chase(ctx context.Context, q *query, a answer) {
	for range maxChase {
		target := lower(a.chase)
		if !s.zone.contains(target) {
			s.chaseElsewhere(ctx, q, a)
			return
		}
		next := s.zone.resolve(lookup{name: target, qtype: q.qtype, room: q.from.limit(q.msg)})
		if next.rcode == dns.RcodeNameError && !s.cfg.Store.Synced() { // the name may be in a source that cannot be read
			s.reply(q, answer{rcode: dns.RcodeServerFailure})
			return
		}
		a.rrs = append(a.rrs, next.rrs...)
		a.rcode, a.soa, a.chase, a.cut = next.rcode, next.soa, next.chase, next.cut
		if a.chase == "" {
			s.reply(q, a)
			return
		}
	}
	s.reply(q, answer{rcode: dns.RcodeServerFailure}) // a CNAME loop
}

func (s *Server) chaseElsewhere(ctx context.Context, q *query, a answer) {
	if len(s.forward.upstreams()) == 0 {
		s.reply(q, a)
		return
	}
	req := new(dns.Msg)
	req.SetQuestion(a.chase, q.qtype)
	s.askFor(ctx, q, asking{s.forward, req}, func(m *dns.Msg) {
		rrs := append([]dns.RR{}, a.rrs...)
		for _, rr := range m.Answer {
			rrs = append(rrs, dns.Copy(rr))
		}
		s.reply(q, answer{rcode: m.Rcode, rrs: rrs, cut: m.Truncated})
	})
}
