package relay

import (
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// maxStuck bounds the clients that session affinity remembers for one Service port.
const maxStuck = 1 << 16

// stuck is a client's endpoint under session affinity.
type stuck struct {
	at    netip.AddrPort
	until time.Time
}

// affinity is the session affinity state of one Service port: all its addresses and node
// ports share it.
type affinity struct {
	key   portKey
	users int // Targets; guarded by affinities.mu

	mu      sync.Mutex
	timeout time.Duration
	by      map[netip.Addr]stuck
}

// portKey is one Service port in one family.
type portKey struct {
	service  model.ServiceKey
	port     string
	protocol model.Protocol
	family   model.Family
}

// affinities are those of all Service ports.
type affinities struct {
	mu sync.Mutex
	by map[portKey]*affinity
}

// of returns the affinity of a Frontend, in place of old, which its Target used before; nil if none.
func (x *affinities) of(f *model.Frontend, old *affinity) *affinity {
	k := portKey{f.Service, f.Port, f.Key.Protocol, f.Key.Family}
	if old != nil && old.key == k {
		return old
	}
	x.drop(old)
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.by[k]
	if a == nil {
		a = &affinity{key: k, by: map[netip.Addr]stuck{}}
		x.by[k] = a
	}
	a.users++
	return a
}

// drop releases an affinity that a Target no longer uses.
func (x *affinities) drop(a *affinity) {
	if a == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if a.users--; a.users == 0 {
		delete(x.by, a.key)
	}
}

// set changes the timeout, which counts from a client's last connection: also for those that
// are idle now. 0 forgets all.
func (a *affinity) set(timeout time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if timeout == a.timeout {
		return
	}
	if timeout == 0 {
		clear(a.by)
	}
	for c, s := range a.by {
		a.by[c] = stuck{s.at, s.until.Add(timeout - a.timeout)}
	}
	a.timeout = timeout
}

// find returns a client's endpoint, and whether one is remembered.
func (a *affinity) find(client netip.Addr, now time.Time) (netip.AddrPort, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, ok := a.by[client]
	return s.at, ok && now.Before(s.until)
}

// remember records a client's connection to an endpoint.
func (a *affinity) remember(client netip.Addr, at netip.AddrPort, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.by[client]; !known && len(a.by) >= maxStuck {
		for c, s := range a.by {
			if now.After(s.until) {
				delete(a.by, c)
			}
		}
		// No entry had expired: arbitrary clients are forgotten and draw an endpoint next time.
		// An eighth of them is removed at once, so that a flood of clients does not pay for the search each time.
		for c := range a.by {
			if len(a.by) <= maxStuck/8*7 {
				break
			}
			delete(a.by, c)
		}
	}
	a.by[client] = stuck{at, now.Add(a.timeout)}
}
