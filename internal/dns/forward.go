package dns

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	tryTimeout   = 1500 * time.Millisecond // below the 2 s after which some clients ask again
	totalTimeout = 4500 * time.Millisecond // below the 5 s after which resolvers give up (glibc, musl, Go)
	maxTries     = 3
	maxForwards  = 1024 // in flight; above, SERVFAIL
)

// forwarder asks other servers. Equal questions in flight are asked once. This also ends
// a forwarding loop that goes through servers which hide it, because the question then
// waits for itself and runs into its timeout.
type forwarder struct {
	servers atomic.Pointer[[]*upstream]
	guard   *guard
	cache   *cache
	now     func() time.Time
	metrics *Metrics
	healthy prometheus.Gauge // how many servers answer; nil: not reported
	token   string           // of the probes, to recognise them

	asking sync.WaitGroup
	mu     sync.Mutex
	flight map[cacheKey]*flight
}

// flight is one question that is being asked. waiting is guarded by the forwarder.
type flight struct{ waiting []func(*dns.Msg) }

var errBadAnswer = errors.New("the response does not match the query")

func newForwarder(addrs []netip.AddrPort, c *Config) *forwarder {
	f := &forwarder{metrics: c.Metrics, cache: newCache(c.Now), now: c.Now, flight: map[cacheKey]*flight{}}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (Go 1.24)
	f.token = hex.EncodeToString(b[:])
	f.setServers(addrs)
	return f
}

// elsewhere has a query answered by other servers.
func (s *Server) elsewhere(ctx context.Context, q *query, f *forwarder) {
	if s.forward.gotProbe(q.name) || s.cluster.gotProbe(q.name) {
		s.reply(q, answer{rcode: dns.RcodeRefused})
		return
	}
	switch {
	case len(f.upstreams()) == 0 && q.zone == zoneCluster:
		s.reply(q, answer{rcode: dns.RcodeServerFailure}) // not synced: ask again later
		return
	case len(f.upstreams()) == 0 || !q.msg.RecursionDesired:
		s.reply(q, answer{rcode: dns.RcodeRefused})
		return
	}
	s.askFor(ctx, q, asking{f, q.msg}, func(m *dns.Msg) { s.relay(q, m) })
}

// asking is a question to other servers, on behalf of a client.
type asking struct {
	servers *forwarder
	msg     *dns.Msg
}

// askFor asks other servers on behalf of a client. The question counts as one of the
// client's flights. If there is no answer, the client gets SERVFAIL.
func (s *Server) askFor(ctx context.Context, q *query, a asking, done func(*dns.Msg)) {
	if !q.client.takeOff() {
		s.metrics.forwards.WithLabelValues(forwardShedClient).Inc()
		s.reply(q, answer{rcode: dns.RcodeServerFailure})
		return
	}
	a.servers.ask(ctx, a.msg, func(m *dns.Msg) {
		defer s.guard.catch(func() { s.refuse(q, dns.RcodeServerFailure) })
		q.client.land()
		if m == nil {
			s.reply(q, answer{rcode: dns.RcodeServerFailure})
			return
		}
		done(m)
	})
}

// relay sends an upstream's answer to the client.
func (s *Server) relay(q *query, m *dns.Msg) {
	m = m.Copy() // shared with the cache and with other clients that asked the same
	m.Id = q.msg.Id
	m.Question = q.msg.Question
	m.Compress = true
	m.Extra = withoutOPT(m.Extra)
	s.send(q, m, false)
}

func withoutOPT(rrs []dns.RR) (out []dns.RR) {
	for _, rr := range rrs {
		if rr.Header().Rrtype != dns.TypeOPT {
			out = append(out, rr)
		}
	}
	return out
}

// ask calls done once, with the answer or nil. It may call it before it returns, from the cache.
func (f *forwarder) ask(ctx context.Context, req *dns.Msg, done func(*dns.Msg)) {
	key := keyOf(req)
	if m := f.cache.get(key); m != nil {
		f.metrics.cacheHits.Inc()
		done(m)
		return
	}
	f.mu.Lock()
	if fl := f.flight[key]; fl != nil {
		full := len(fl.waiting) >= maxForwards
		if !full {
			fl.waiting = append(fl.waiting, done)
		}
		f.mu.Unlock()
		if full {
			f.refuse(done)
		}
		return
	}
	if len(f.flight) >= maxForwards {
		f.mu.Unlock()
		f.refuse(done)
		return
	}
	f.flight[key] = &flight{waiting: []func(*dns.Msg){done}}
	f.mu.Unlock()
	out := outgoing(req)
	f.asking.Go(func() {
		var m *dns.Msg
		defer func() { f.answered(key, m) }()
		defer f.guard.catch(nil)
		if m = f.try(ctx, out); m != nil {
			f.cache.put(key, m)
		}
	})
}

// answered ends a flight: each waiting function is called with m, which is nil if there
// is no answer.
func (f *forwarder) answered(key cacheKey, m *dns.Msg) {
	f.mu.Lock()
	waiting := f.flight[key].waiting
	delete(f.flight, key)
	f.mu.Unlock()
	for _, done := range waiting {
		done(m)
	}
}

func (f *forwarder) refuse(done func(*dns.Msg)) {
	f.metrics.forwards.WithLabelValues(forwardShed).Inc()
	done(nil)
}

// outgoing returns the query that is sent upstream: the client's question and flags
// with a new id.
func outgoing(req *dns.Msg) *dns.Msg {
	m := new(dns.Msg)
	m.Id = dns.Id()
	m.RecursionDesired = true
	m.CheckingDisabled, m.AuthenticatedData = req.CheckingDisabled, req.AuthenticatedData
	m.Question = []dns.Question{req.Question[0]}
	do := false
	if opt := req.IsEdns0(); opt != nil {
		do = opt.Do()
	}
	m.SetEdns0(maxUDPAnswer, do)
	return m
}

// outcome is the result of one attempt at a server.
type outcome struct {
	from   *upstream
	answer *dns.Msg
	err    error
}

// try asks up to maxTries times, the healthy servers first. It retries when the previous attempt has failed, or has had no
// answer for tryTimeout. A slow server may still answer an earlier attempt, until totalTimeout.
func (f *forwarder) try(ctx context.Context, m *dns.Msg) *dns.Msg {
	order := f.order()
	if len(order) == 0 {
		return nil // the list has become empty concurrently
	}
	ctx, cancel := context.WithTimeout(ctx, totalTimeout)
	defer cancel()
	tries := maxTries
	outcomes := make(chan outcome, maxTries)
	next := time.NewTimer(0)
	defer next.Stop()
	var best *dns.Msg
	var seen []*upstream // whose attempt has ended
	for started, ended := 0, 0; ended < tries; {
		select {
		case <-ctx.Done():
			return best
		case <-next.C:
			if started == tries {
				continue
			}
			u, plain := pick(order, started, seen)
			f.asking.Go(func() { f.tryOne(ctx, attempt{u, m, plain}, outcomes) })
			started++
			next.Reset(tryTimeout)
		case o := <-outcomes:
			ended++
			seen = append(seen, o.from)
			next.Reset(0)
			if o.err != nil {
				continue
			}
			tries = max(started, min(maxTries, max(2, len(order))))
			if final(o.answer) {
				return o.answer
			}
			best = better(best, o.answer)
		}
	}
	return best
}

// pick returns the server of the next attempt: one that has not been asked, else one that is silent, which is then asked
// without EDNS, else any.
func pick(order []*upstream, started int, seen []*upstream) (_ *upstream, plain bool) {
	if started < len(order) {
		return order[started], false
	}
	for _, u := range order {
		if !slices.Contains(seen, u) {
			return u, true
		}
	}
	return order[started%len(order)], false
}

// attempt is a query to one server, plain if it is asked without EDNS.
type attempt struct {
	server *upstream
	msg    *dns.Msg
	plain  bool
}

// tryOne asks one server and updates its health: an answer that takes longer than tryTimeout is a failure until it arrives.
func (f *forwarder) tryOne(ctx context.Context, a attempt, to chan<- outcome) {
	u := a.server
	o := outcome{from: u, err: errBadAnswer}
	defer func() { to <- o }()
	defer f.guard.catch(nil)
	start := time.Now()
	late := time.AfterFunc(tryTimeout, func() { u.result(false) })
	o.answer, o.err = f.exchange(ctx, u, a.msg, a.plain)
	waiting := late.Stop()
	if o.err == nil {
		u.result(true)
		f.metrics.forwards.WithLabelValues(forwardOK).Inc()
		f.metrics.forwardTime.Observe(time.Since(start).Seconds())
		return
	}
	if ctx.Err() == nil && waiting {
		u.result(false)
	}
	if ctx.Err() == nil || !waiting {
		f.metrics.forwards.WithLabelValues(forwardError).Inc()
	}
}

// final reports whether no other server need be asked.
func final(m *dns.Msg) bool {
	return !m.Truncated && m.Rcode != dns.RcodeServerFailure && m.Rcode != dns.RcodeRefused
}

// better returns the more useful of two answers that are not final; a may be nil.
func better(a, b *dns.Msg) *dns.Msg {
	if a != nil && a.Truncated && (!b.Truncated || len(b.Answer) < len(a.Answer)) {
		return a
	}
	return b
}
