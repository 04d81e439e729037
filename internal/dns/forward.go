package dns

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	mathrand "math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	tryTimeout  = 1500 * time.Millisecond // below the 2 s after which some clients ask again
	maxTries    = 3
	maxForwards = 1024 // in flight; above, SERVFAIL
	downAfter   = 2    // failures in a row
	probeEvery  = time.Second
	loopDomain  = ".fairlead-probe.invalid." // RFC 6761: never to be found
)

// forwarder asks other servers. Equal questions in flight are asked once: that
// is also what ends a loop that goes through servers which hide it, since the
// question then waits for itself and runs into its time-out.
type forwarder struct {
	upstreams []*upstream
	cache     *cache
	metrics   *Metrics
	token     string // of the probes, to recognise them

	asking sync.WaitGroup
	mu     sync.Mutex
	flight map[cacheKey]*flight
}

// flight is one question that is being asked. waiting is guarded by the forwarder.
type flight struct{ waiting []func(*dns.Msg) }

type upstream struct {
	addr  netip.AddrPort
	mu    sync.Mutex
	fails int  // in a row
	loops bool // our own probe came back through it
}

var errBadAnswer = errors.New("the answer does not fit the question")

func newForwarder(addrs []netip.AddrPort, c *Config) *forwarder {
	f := &forwarder{metrics: c.Metrics, cache: newCache(c.Now), flight: map[cacheKey]*flight{}}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (Go 1.24)
	f.token = hex.EncodeToString(b[:])
	for _, a := range addrs {
		f.upstreams = append(f.upstreams, &upstream{addr: a})
	}
	return f
}

// elsewhere has a query answered by other servers.
func (s *Server) elsewhere(ctx context.Context, q *query, f *forwarder) {
	if s.forward.gotProbe(q.name) || s.cluster.gotProbe(q.name) {
		s.reply(q, answer{rcode: dns.RcodeRefused})
		return
	}
	switch {
	case len(f.upstreams) == 0 && q.zone == zoneCluster:
		s.reply(q, answer{rcode: dns.RcodeServerFailure}) // not synced: ask again later
		return
	case len(f.upstreams) == 0 || !q.msg.RecursionDesired:
		s.reply(q, answer{rcode: dns.RcodeRefused})
		return
	}
	f.ask(ctx, q.msg, func(m *dns.Msg) {
		if m == nil {
			s.reply(q, answer{rcode: dns.RcodeServerFailure})
			return
		}
		s.relay(q, m)
	})
}

// relay passes an upstream's answer on.
func (s *Server) relay(q *query, m *dns.Msg) {
	m = m.Copy() // shared with the cache and with others who asked the same
	m.Id = q.msg.Id
	m.Question = q.msg.Question
	m.Compress = true
	m.Extra = withoutOPT(m.Extra)
	s.send(q, m)
}

func withoutOPT(rrs []dns.RR) (out []dns.RR) {
	for _, rr := range rrs {
		if rr.Header().Rrtype != dns.TypeOPT {
			out = append(out, rr)
		}
	}
	return out
}

// ask calls done with the answer, or nil, once; maybe at once, from the cache.
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
		m := f.try(ctx, out)
		if m != nil {
			f.cache.put(key, m)
		}
		f.mu.Lock()
		waiting := f.flight[key].waiting
		delete(f.flight, key)
		f.mu.Unlock()
		for _, done := range waiting {
			done(m)
		}
	})
}

func (f *forwarder) refuse(done func(*dns.Msg)) {
	f.metrics.forwards.WithLabelValues("shed").Inc()
	done(nil)
}

// outgoing makes the query that goes upstream: the client's question and flags
// under an id of our own.
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

// try asks up to maxTries servers, the healthy ones first.
func (f *forwarder) try(ctx context.Context, m *dns.Msg) *dns.Msg {
	order := f.order()
	var last *dns.Msg
	for i := range min(maxTries, max(2, len(order))) {
		u := order[i%len(order)]
		start := time.Now()
		answer, err := exchange(ctx, u.addr, m)
		u.result(err == nil)
		if err != nil {
			f.metrics.forwards.WithLabelValues("error").Inc()
			if ctx.Err() != nil {
				return nil
			}
			continue
		}
		f.metrics.forwards.WithLabelValues("ok").Inc()
		f.metrics.forwardTime.Observe(time.Since(start).Seconds())
		if last = answer; answer.Rcode != dns.RcodeServerFailure && answer.Rcode != dns.RcodeRefused {
			return answer
		}
	}
	return last
}

// order lists the servers: healthy before others, at random among equals.
func (f *forwarder) order() []*upstream {
	list := make([]*upstream, 0, len(f.upstreams))
	var rest []*upstream
	for _, i := range mathrand.Perm(len(f.upstreams)) {
		if u := f.upstreams[i]; u.healthy() {
			list = append(list, u)
		} else {
			rest = append(rest, u)
		}
	}
	return append(list, rest...)
}

// exchange asks over UDP, and over TCP if the answer was cut.
func exchange(ctx context.Context, to netip.AddrPort, m *dns.Msg) (*dns.Msg, error) {
	for _, proto := range []string{"udp", "tcp"} {
		c := dns.Client{Net: proto, Timeout: tryTimeout, UDPSize: maxUDPAnswer}
		answer, _, err := c.ExchangeContext(ctx, m, to.String())
		if err != nil {
			return nil, err
		}
		if !fits(answer, m) {
			return nil, errBadAnswer
		}
		if !answer.Truncated {
			return answer, nil
		}
	}
	return nil, errBadAnswer // cut over TCP
}

func fits(answer, m *dns.Msg) bool {
	if !answer.Response || len(answer.Question) != 1 {
		return false
	}
	a, q := answer.Question[0], m.Question[0]
	return a.Qtype == q.Qtype && a.Qclass == q.Qclass && strings.EqualFold(a.Name, q.Name)
}

func (u *upstream) result(ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if ok {
		u.fails = 0
	} else {
		u.fails++
	}
}

func (u *upstream) healthy() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.fails < downAfter && !u.loops
}

// watch probes the servers that failed, and every one once at the start to see
// whether it sends our own questions back to us.
func (f *forwarder) watch(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for first := true; len(f.upstreams) > 0; first = false {
		var wg sync.WaitGroup
		for i, u := range f.upstreams {
			if first || !u.healthy() {
				wg.Go(func() { f.probe(ctx, i, u) })
			}
		}
		wg.Wait()
		n := 0
		for _, u := range f.upstreams {
			if u.healthy() {
				n++
			}
		}
		f.metrics.healthy.Set(float64(n))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (f *forwarder) probe(ctx context.Context, i int, u *upstream) {
	u.mu.Lock()
	u.loops = false // gotProbe says so again if it is still true
	u.mu.Unlock()
	m := new(dns.Msg)
	m.SetQuestion(f.token+"-"+strconv.Itoa(i)+loopDomain, dns.TypeTXT)
	_, err := exchange(ctx, u.addr, m)
	u.result(err == nil)
}

// gotProbe recognises our own probe coming back: the server it was sent to
// forwards to us, so it must not be asked.
func (f *forwarder) gotProbe(name string) bool {
	label, ok := strings.CutSuffix(name, loopDomain)
	if !ok {
		return false
	}
	token, number, _ := strings.Cut(label, "-")
	i, err := strconv.Atoi(number)
	if err != nil || token != f.token || i < 0 || i >= len(f.upstreams) {
		return false
	}
	u := f.upstreams[i]
	u.mu.Lock()
	u.loops = true
	u.mu.Unlock()
	return true
}
