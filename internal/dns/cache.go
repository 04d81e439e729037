package dns

import (
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Bounds of the cache of upstream answers. It is small and short: it is there
// for the repetitions of one node's pods, not to replace the servers upstream.
// Negative answers are never kept: that is what this server is for.
const (
	maxCached   = 4096
	maxCacheTTL = 30 * time.Second
)

type cacheKey struct {
	name   string
	qtype  uint16
	do, cd bool
}

type cache struct {
	now func() time.Time
	mu  sync.Mutex
	at  map[cacheKey]cached
}

type cached struct {
	msg    *dns.Msg // never written to
	stored time.Time
	until  time.Time
}

func newCache(now func() time.Time) *cache { return &cache{now: now, at: map[cacheKey]cached{}} }

func keyOf(m *dns.Msg) cacheKey {
	opt := m.IsEdns0()
	return cacheKey{lower(m.Question[0].Name), m.Question[0].Qtype, opt != nil && opt.Do(), m.CheckingDisabled}
}

// get returns an answer with its TTLs counted down, or nil.
func (c *cache) get(k cacheKey) *dns.Msg {
	now := c.now()
	c.mu.Lock()
	e, ok := c.at[k]
	if ok && now.After(e.until) {
		delete(c.at, k)
		ok = false
	}
	c.mu.Unlock()
	if !ok {
		return nil
	}
	m := e.msg.Copy()
	age := uint32(now.Sub(e.stored) / time.Second)
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			if h := rr.Header(); h.Rrtype != dns.TypeOPT {
				h.Ttl -= min(age, h.Ttl)
			}
		}
	}
	return m
}

// put caches a positive answer for its shortest TTL.
func (c *cache) put(k cacheKey, m *dns.Msg) {
	if m.Rcode != dns.RcodeSuccess || m.Truncated || !answers(m, k.qtype) {
		return
	}
	d := maxCacheTTL
	for _, rr := range m.Answer {
		d = min(d, time.Duration(rr.Header().Ttl)*time.Second)
	}
	if d <= 0 {
		return
	}
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.at) >= maxCached {
		for old := range c.at { // evicts a random entry: the order of map iteration is random
			delete(c.at, old)
			break
		}
	}
	c.at[k] = cached{msg: m, stored: now, until: now.Add(d)}
}

// answers distinguishes a real answer from NODATA behind a CNAME.
func answers(m *dns.Msg, qtype uint16) bool {
	for _, rr := range m.Answer {
		if rr.Header().Rrtype == qtype || qtype == dns.TypeANY {
			return true
		}
	}
	return false
}
