package dns

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// Bounds of parking (docs/headless.md). A query above them is answered at once.
const (
	maxParked    = 1024
	maxPerClient = 64
	maxPerPair   = 16
	pause        = 10 * time.Second // after a wait without success the same client is not delayed again
	maxPaused    = 4096
)

// parking holds the parked queries. One waiter is one small struct; one goroutine
// (run) ends them all. Any goroutine may add.
type parking struct {
	parkingConfig
	bell chan struct{} // size 1: notifies run of changes and of a new first deadline

	mu      sync.Mutex
	waiters map[waitID]*waiter
	byKey   map[model.ServiceKey]map[*waiter]struct{}
	next    time.Time // the first deadline that run knows of
	clients map[netip.Addr]int
	pairs   map[clientName]int
	paused  map[clientName]time.Time // until
	dirty   map[model.ServiceKey]struct{}
}

type parkingConfig struct {
	metrics *Metrics
	now     func() time.Time
	retry   func(q *query, timedOut bool)
}

// waitID is what a client repeats when it asks again: the same query joins the
// one that is parked.
type waitID struct {
	from  netip.AddrPort
	id    uint16
	qtype uint16
	name  string
	tcp   *tcpConn
}

type clientName struct {
	client netip.Addr
	name   string
}

type waiter struct {
	q        *query
	id       waitID
	key      model.ServiceKey
	since    time.Time
	deadline time.Time
}

func newParking(c parkingConfig) *parking {
	return &parking{
		parkingConfig: c, bell: make(chan struct{}, 1),
		waiters: map[waitID]*waiter{}, byKey: map[model.ServiceKey]map[*waiter]struct{}{},
		clients: map[netip.Addr]int{}, pairs: map[clientName]int{}, paused: map[clientName]time.Time{},
		dirty: map[model.ServiceKey]struct{}{},
	}
}

func idOfQuery(q *query) waitID {
	return waitID{from: q.from.addr, id: q.msg.Id, qtype: q.qtype, name: q.name, tcp: q.from.tcp}
}

// add parks a query for at most d. It returns false if the query must be answered at once.
func (p *parking) add(q *query, key model.ServiceKey, d time.Duration) bool {
	now, id := p.now(), idOfQuery(q)
	pair := clientName{q.from.client(), q.name}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiters[id] != nil {
		q.from.unanswered()
		return true
	}
	if until, ok := p.paused[pair]; ok && now.Before(until) {
		return false
	}
	if len(p.waiters) >= maxParked || p.clients[pair.client] >= maxPerClient || p.pairs[pair] >= maxPerPair {
		p.metrics.unparked(shed, 0)
		return false
	}
	w := &waiter{q: q, id: id, key: key, since: now, deadline: now.Add(d)}
	p.waiters[id] = w
	if p.byKey[key] == nil {
		p.byKey[key] = map[*waiter]struct{}{}
	}
	p.byKey[key][w] = struct{}{}
	p.clients[pair.client]++
	p.pairs[pair]++
	p.metrics.parked.Set(float64(len(p.waiters)))
	if p.next.IsZero() || w.deadline.Before(p.next) {
		p.ring()
	}
	return true
}

// remove takes a query out. It returns false if another goroutine has done so.
func (p *parking) remove(q *query, result string) bool {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.waiters[idOfQuery(q)]
	if w == nil {
		return false
	}
	p.removeLocked(w)
	if result == expired && q.status == nil { // a client that asks for a status means to wait
		p.pauseFor(clientName{q.from.client(), q.name}, now)
	}
	p.metrics.unparked(result, now.Sub(w.since))
	return true
}

func (p *parking) removeLocked(w *waiter) {
	pair := clientName{w.q.from.client(), w.id.name}
	delete(p.waiters, w.id)
	delete(p.byKey[w.key], w)
	if len(p.byKey[w.key]) == 0 {
		delete(p.byKey, w.key)
	}
	if p.clients[pair.client]--; p.clients[pair.client] == 0 {
		delete(p.clients, pair.client)
	}
	if p.pairs[pair]--; p.pairs[pair] == 0 {
		delete(p.pairs, pair)
	}
	p.metrics.parked.Set(float64(len(p.waiters)))
}

func (p *parking) pauseFor(pair clientName, now time.Time) {
	if len(p.paused) >= maxPaused {
		for o, until := range p.paused {
			if now.After(until) || len(p.paused) >= maxPaused {
				delete(p.paused, o)
			}
		}
	}
	p.paused[pair] = now.Add(pause)
}

// changed marks a Service dirty: its names may have changed. It does not block.
func (p *parking) changed(key model.ServiceKey) {
	p.mu.Lock()
	_, waited := p.byKey[key]
	if waited {
		p.dirty[key] = struct{}{}
	}
	p.mu.Unlock()
	if waited {
		p.ring()
	}
}

// cancel removes the queries of a closed connection.
func (p *parking) cancel(c *tcpConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for id, w := range p.waiters {
		if id.tcp == c {
			p.removeLocked(w)
			p.metrics.unparked(cancelled, now.Sub(w.since))
		}
	}
}

func (p *parking) ring() {
	select {
	case p.bell <- struct{}{}:
	default: // a notification is pending already
	}
}

// run ends waits until ctx ends; what is parked then is cancelled.
func (p *parking) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer p.cancelAll()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.bell:
		case <-timer.C:
		}
		for _, q := range p.affected() {
			p.retry(q, false)
		}
		due, next := p.due()
		for _, q := range due {
			p.retry(q, true)
		}
		timer.Reset(next)
	}
}

// affected returns the queries of the dirty Services, and clears the dirty set.
func (p *parking) affected() (list []*query) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.dirty {
		for w := range p.byKey[key] {
			list = append(list, w.q)
		}
	}
	clear(p.dirty)
	return list
}

// due returns the queries whose deadline has passed, and how long until the next deadline.
// retry then removes them. maxParked is small enough to scan all of them.
func (p *parking) due() (list []*query, next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	next = time.Hour
	p.next = time.Time{}
	for _, w := range p.waiters {
		left := w.deadline.Sub(now)
		if left <= 0 {
			list = append(list, w.q)
		} else if left < next {
			next, p.next = left, w.deadline
		}
	}
	return list, next
}

func (p *parking) cancelAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.waiters {
		p.removeLocked(w)
		p.metrics.unparked(cancelled, p.now().Sub(w.since))
	}
}
