package dns

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// plainFor is how long a server that does not take EDNS is asked without it.
const plainFor = 10 * time.Minute

// silencesBeforePlain is how many queries in a row a server must leave unanswered with an OPT record, and answer
// without, before it counts as one that does not take EDNS: one loss of a datagram looks the same.
const silencesBeforePlain = 2

// exchange asks one server over UDP, and over TCP if the answer is cut. An answer that is still cut has the TC bit and
// what came over UDP. A server that refuses the OPT record is asked again without it (RFC 6891 section 6.2.2). plain
// leaves OPT out from the start: the server has been silent to a query with OPT.
func (f *forwarder) exchange(ctx context.Context, u *upstream, m *dns.Msg, plain bool) (*dns.Msg, error) {
	if known := u.plain(f.now()); plain || known {
		answer, err := ask(ctx, u.addr, withoutEDNS(m))
		if err == nil && !known {
			u.silentToEDNS(f.now())
		}
		return answer, err
	}
	answer, err := ask(ctx, u.addr, m)
	if err != nil {
		return nil, err
	}
	if !refusesEDNS(answer) {
		u.takesEDNS()
		return answer, nil
	}
	bare, err := ask(ctx, u.addr, withoutEDNS(m))
	if err == nil && !refusesEDNS(bare) {
		u.refusedEDNS(f.now())
	}
	return bare, err
}

// refusesEDNS reports whether an answer is what a server without EDNS sends: FORMERR or NOTIMP without an OPT record
// (RFC 6891 section 7), often without the question.
func refusesEDNS(answer *dns.Msg) bool {
	return (answer.Rcode == dns.RcodeFormatError || answer.Rcode == dns.RcodeNotImplemented) && answer.IsEdns0() == nil
}

func withoutEDNS(m *dns.Msg) *dns.Msg {
	out := *m
	out.Id = dns.Id()
	out.Extra = withoutOPT(m.Extra)
	return &out
}

// ask sends one query to one server over UDP, and over TCP if the answer is cut. If TCP fails it returns what came over UDP.
func ask(ctx context.Context, to netip.AddrPort, m *dns.Msg) (*dns.Msg, error) {
	answer, err := askOver(ctx, "udp", to, m)
	if err != nil || !answer.Truncated {
		return answer, err
	}
	tcp, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	if whole, err := askOver(tcp, "tcp", to, m); err == nil && !whole.Truncated {
		return whole, nil
	}
	return answer, nil
}

// maxUDPRead is how many bytes of a datagram are read. A server may send more than maxUDPAnswer, the size that the query advertises.
const maxUDPRead = 4096

// askOver sends one query by one protocol and waits until ctx ends. An answer over UDP that is longer than the query
// allows counts as cut.
func askOver(ctx context.Context, proto string, to netip.AddrPort, m *dns.Msg) (*dns.Msg, error) {
	c := dns.Client{Net: proto, Timeout: totalTimeout}
	conn, err := c.DialContext(ctx, to.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(totalTimeout)); err != nil {
		return nil, err
	}
	if err := conn.WriteMsg(m); err != nil {
		return nil, err
	}
	conn.UDPSize = maxUDPRead
	for {
		var head dns.Header
		raw, err := conn.ReadMsgHeader(&head)
		if err != nil {
			return nil, err
		}
		if head.Id != m.Id {
			continue // of an earlier query, or forged
		}
		answer := new(dns.Msg)
		err = answer.Unpack(raw)
		if !fits(answer, m) {
			return nil, errBadAnswer
		}
		if proto == "udp" && len(raw) > maxUDPAnswer {
			answer.Truncated = true
			return answer, nil
		}
		return answer, err
	}
}

// fits reports whether an answer is one to the question. A server that does not understand a query may leave the
// question out (RFC 1035 section 4.1.1 does not forbid it).
func fits(answer, m *dns.Msg) bool {
	if answer.Response && len(answer.Question) == 0 && m.IsEdns0() != nil && refusesEDNS(answer) {
		return true
	}
	if !answer.Response || len(answer.Question) != 1 {
		return false
	}
	a, q := answer.Question[0], m.Question[0]
	return a.Qtype == q.Qtype && a.Qclass == q.Qclass && strings.EqualFold(a.Name, q.Name)
}

// plain reports whether the server is known not to take EDNS.
func (u *upstream) plain(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return now.Before(u.plainUntil)
}

func (u *upstream) takesEDNS() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.silences = 0
}

func (u *upstream) refusedEDNS(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.plainUntil = now.Add(plainFor)
}

// silentToEDNS counts a query that the server has answered without an OPT record, and not with one.
func (u *upstream) silentToEDNS(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.silences++; u.silences >= silencesBeforePlain {
		u.plainUntil = now.Add(plainFor)
	}
}
