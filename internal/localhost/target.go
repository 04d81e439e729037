package localhost

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// target is where the connections of one listener go. What comes from ::1 is the
// node's own traffic, so it may use the cluster's endpoints under
// externalTrafficPolicy Local too.
type target struct {
	mu    sync.Mutex
	f     model.Frontend
	stuck netip.AddrPort // session affinity: the only client has only one endpoint
	until time.Time
}

func newTarget(f model.Frontend) *target { return &target{f: f} }

func (t *target) set(f model.Frontend) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.f = f
}

// admits reports whether the source ranges admit a client.
func (t *target) admits(client netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.f.Guarded || slices.ContainsFunc(t.f.SourceRanges, func(p netip.Prefix) bool { return p.Contains(client) })
}

// has reports whether an endpoint may still receive datagrams.
func (t *target) has(a netip.AddrPort) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.index(a) >= 0 ||
		slices.ContainsFunc(t.f.Others, func(o model.Other) bool { return o.Serving && o.Addr == a })
}

func (t *target) index(a netip.AddrPort) int {
	return slices.IndexFunc(t.f.Backends, func(b model.Backend) bool { return b.AddrPort() == a })
}

// pick returns an endpoint for a new connection, but none of those that failed.
func (t *target) pick(now time.Time, failed []netip.AddrPort) (netip.AddrPort, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.f.AffinityTimeout > 0 && now.Before(t.until) && t.index(t.stuck) >= 0 && !slices.Contains(failed, t.stuck) {
		t.until = now.Add(t.f.AffinityTimeout)
		return t.stuck, true
	}
	sum := 0
	for i := range t.f.Backends {
		if b := &t.f.Backends[i]; !slices.Contains(failed, b.AddrPort()) {
			sum += int(b.Weight)
		}
	}
	if sum == 0 {
		return netip.AddrPort{}, false
	}
	draw := 0
	if !t.f.ConsistentHash { // a hash maps one client to one endpoint, and here there is only one client
		draw = rand.IntN(sum)
	}
	for i := range t.f.Backends {
		b := &t.f.Backends[i]
		if slices.Contains(failed, b.AddrPort()) {
			continue
		}
		if draw -= int(b.Weight); draw < 0 {
			t.stuck, t.until = b.AddrPort(), now.Add(t.f.AffinityTimeout)
			return t.stuck, true
		}
	}
	return netip.AddrPort{}, false
}
