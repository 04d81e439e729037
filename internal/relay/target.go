package relay

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// Target holds the endpoints and the connections of one Frontend.
type Target struct {
	r *Relay

	mu        sync.Mutex
	f         model.Frontend
	pool      pool // of Backends
	local     pool // of LocalBackends
	affinity  *affinity
	conns     map[netip.AddrPort]map[*conn]struct{} // by endpoint
	ending    map[netip.AddrPort]*ending            // of removed endpoints
	listeners map[*Listener]struct{}
	astray    map[astray]time.Time // until when their clients' addresses are not kept
}

// pool is a list of endpoints from which to draw.
type pool struct {
	list   []model.Backend
	sums   []int // running sums of weights; nil if all are 1
	table  model.HashTable
	hashed bool
}

func newPool(list []model.Backend, table model.HashTable, hashed bool) pool {
	p := pool{list: list, table: table, hashed: hashed && len(table) > 0}
	if slices.ContainsFunc(list, func(b model.Backend) bool { return b.Weight != 1 }) {
		sum := 0
		for i := range list {
			sum += int(list[i].Weight)
			p.sums = append(p.sums, sum)
		}
	}
	return p
}

func (p *pool) has(a netip.AddrPort) bool {
	return slices.ContainsFunc(p.list, func(b model.Backend) bool { return b.AddrPort() == a })
}

// first returns the index at which the search for an endpoint begins: random, or by the client's hash.
func (p *pool) first(client netip.Addr) int {
	switch {
	case p.hashed:
		return int(p.table[p.table.Place(client)])
	case p.sums == nil:
		return rand.IntN(len(p.list))
	}
	i, _ := slices.BinarySearch(p.sums, rand.IntN(p.sums[len(p.sums)-1])+1)
	return i
}

// Target returns a new Target for a Frontend.
func (r *Relay) Target(f model.Frontend) *Target {
	t := &Target{r: r, conns: map[netip.AddrPort]map[*conn]struct{}{}, ending: map[netip.AddrPort]*ending{}, astray: map[astray]time.Time{}, listeners: map[*Listener]struct{}{}}
	t.take(f)
	return t
}

func (t *Target) take(f model.Frontend) {
	t.f = f
	t.pool = newPool(f.Backends, f.HashTable, f.ConsistentHash)
	t.local = newPool(f.LocalBackends, f.LocalHashTable, f.ConsistentHash)
	t.affinity = t.r.affinities.of(&f, t.affinity)
	t.affinity.set(f.AffinityTimeout)
}

// Set updates the Target's Frontend. New connections use it. Open ones continue, those to
// removed endpoints until the grace period is over.
func (t *Target) Set(f model.Frontend) {
	t.mu.Lock()
	t.take(f)
	gone := t.follow()
	t.mu.Unlock()
	endAll(gone)
	t.Refilter()
}

// Remove records that the Frontend was removed: all its endpoints count as removed.
func (t *Target) Remove() {
	t.mu.Lock()
	f := t.f
	t.mu.Unlock()
	f.Backends, f.LocalBackends, f.Others = nil, nil, nil
	f.HashTable, f.LocalHashTable = nil, nil
	t.Set(f)
	t.r.affinities.drop(t.affinity)
}

func (t *Target) exists(a netip.AddrPort) bool {
	return t.pool.has(a) || t.local.has(a) || slices.ContainsFunc(t.f.Others, func(o model.Other) bool { return o.Addr == a })
}

// wishes returns the settings of the Service that are extensions to Kubernetes.
func (t *Target) wishes() model.Relaying {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.f.Relay
}

// guest returns the Service that a new client's descriptors are charged to, and that Service's own limit.
func (t *Target) guest() (svc model.ServiceKey, own int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.f.Service, 2 * t.f.Relay.MaxConnections
}

func (t *Target) service() model.ServiceKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.f.Service
}

// serves reports whether an endpoint may still get a client's datagrams.
func (t *Target) serves(a netip.AddrPort) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pool.has(a) || t.local.has(a) ||
		slices.ContainsFunc(t.f.Others, func(o model.Other) bool { return o.Serving && o.Addr == a })
}

// admits repeats the check of the socket's filter. It reports whether the client may connect.
func (t *Target) admits(client, at netip.Addr) bool {
	t.mu.Lock()
	f := &t.f
	list, any := admitted(f, t.r.where.Load(), at)
	t.mu.Unlock()
	return any || within(list, client)
}

// visit is a client's search for an endpoint, with the endpoints that did not accept it.
type visit struct {
	client, at netip.Addr
	failed     []netip.AddrPort
}

// pick returns an endpoint, none of those that failed.
func (t *Target) pick(v *visit, now time.Time) (netip.AddrPort, bool) {
	inside := t.r.where.Load().inside(v.client, v.at)
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &t.pool
	if t.f.LocalOnly && !inside {
		p = &t.local
	}
	sticky := t.f.AffinityTimeout > 0
	if sticky {
		if at, ok := t.affinity.find(v.client, now); ok && p.has(at) && !slices.Contains(v.failed, at) {
			t.affinity.remember(v.client, at, now)
			return at, true
		}
	}
	if len(p.list) == 0 {
		return netip.AddrPort{}, false
	}
	from := p.first(v.client)
	for i := range p.list {
		at := p.list[(from+i)%len(p.list)].AddrPort()
		if slices.Contains(v.failed, at) {
			continue
		}
		if sticky {
			t.affinity.remember(v.client, at, now)
		}
		return at, true
	}
	return netip.AddrPort{}, false
}

// Refilter updates the sockets' filters to new Whereabouts.
func (t *Target) Refilter() {
	t.mu.Lock()
	open := slices.Collect(maps.Keys(t.listeners))
	t.mu.Unlock()
	for _, l := range open {
		l.refilter()
	}
}
