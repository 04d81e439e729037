package dns

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of one client, so that one pod cannot take the server from the others.
const (
	maxFlightsPerClient = maxForwards / 8 // forwarded queries that have no answer yet
	rateWindow          = 500 * time.Millisecond
	maxClients          = 8192 // remembered one by one; the rest share one entry
	sweepClients        = time.Second
)

// client is the state of one address that may ask.
type client struct {
	allowed bool         // also where queries do not come by interception
	own     bool         // the node itself
	next    atomic.Int64 // Unix nanoseconds at which the rate allows the next query
	flights atomic.Int32
}

// clients decides which addresses may ask, and how often.
type clients struct {
	store    *Store
	allow    []netip.Prefix // nil: this node's pods
	interval int64          // nanoseconds between queries of one client; 0 = no bound
	now      func() time.Time

	mu      sync.RWMutex
	known   map[netip.Addr]*client
	changes uint32 // of Store.locals that known was made with
	swept   time.Time
	rest    *client
}

func newClients(c *Config) *clients {
	l := &clients{store: c.Store, allow: c.Allow, now: c.Now, known: map[netip.Addr]*client{}, rest: &client{allowed: true}}
	if c.ClientRate > 0 {
		l.interval = int64(time.Second) / int64(c.ClientRate)
	}
	return l
}

// find returns the client with that address, or nil if it may not ask.
func (l *clients) find(from netip.Addr, intercepted bool) *client {
	changes := l.store.locals.changes.Load()
	l.mu.RLock()
	c, fresh := l.known[from], l.changes == changes
	l.mu.RUnlock()
	if c == nil || !fresh {
		c = l.learn(from, intercepted, changes)
	}
	if c == nil || !c.allowed && !intercepted {
		return nil
	}
	return c
}

func (l *clients) learn(from netip.Addr, intercepted bool, changes uint32) *client {
	c := &client{own: l.store.isOwn(from)}
	switch {
	case c.own:
		c.allowed = true
	case l.allow != nil:
		c.allowed = within(l.allow, from)
	default:
		c.allowed = l.store.isPod(from)
	}
	if !c.allowed && !intercepted {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changes != changes {
		clear(l.known)
		l.changes = changes
	}
	if old := l.known[from]; old != nil {
		return old
	}
	if len(l.known) >= maxClients {
		l.sweep()
	}
	if len(l.known) >= maxClients {
		return l.rest
	}
	l.known[from] = c
	return c
}

// sweep removes clients that have been idle, at most once in sweepClients:
// an attacker that forges addresses must not make it run for each query.
func (l *clients) sweep() {
	now := l.now()
	if now.Sub(l.swept) < sweepClients {
		return
	}
	l.swept = now
	for a, c := range l.known {
		if c.flights.Load() == 0 && c.next.Load() < now.Add(-sweepClients).UnixNano() {
			delete(l.known, a)
		}
	}
}

// inRate counts one query. It reports whether the client's rate limit allows it. The
// node itself has no limit: a program on it could harm the agent in easier ways.
func (l *clients) inRate(c *client) bool {
	if l.interval == 0 || c.own {
		return true
	}
	now := l.now().UnixNano()
	for {
		old := c.next.Load()
		next := max(old, now) + l.interval
		if next-now > int64(rateWindow) {
			return false
		}
		if c.next.CompareAndSwap(old, next) {
			return true
		}
	}
}

// takeOff counts one forwarded query. It returns false if the client has too many.
func (c *client) takeOff() bool {
	if c.flights.Add(1) > maxFlightsPerClient {
		c.flights.Add(-1)
		return false
	}
	return true
}

func (c *client) land() { c.flights.Add(-1) }
