package dns

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// Bounds of parking (docs/headless.md). What is above is answered at once.
const (
	maxParked    = 1024
	maxPerClient = 64
	maxPerPair   = 16
	pause        = 10 * time.Second // after a wait in vain the same client is not stalled again
	maxPaused    = 4096
)

// lot holds the parked queries. One waiter is one small struct; one goroutine
// (run) ends them all. Any goroutine may add.
type lot struct {
	lotConfig
	bell chan struct{} // one ring says: look at changes and at the first deadline

	mu      sync.Mutex
	waiters map[waitID]*waiter
	byKey   map[model.ServiceKey]map[*waiter]struct{}
	next    time.Time // the first deadline that run knows of
	clients map[netip.Addr]int
	pairs   map[pair]int
	paused  map[pair]time.Time // until
	dirty   map[model.ServiceKey]struct{}
}

type lotConfig struct {
	metrics *Metrics
	now     func() time.Time
	again   func(q *query, over bool)
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

type pair struct {
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

func newLot(c lotConfig) *lot {
	return &lot{
		lotConfig: c, bell: make(chan struct{}, 1),
		waiters: map[waitID]*waiter{}, byKey: map[model.ServiceKey]map[*waiter]struct{}{},
		clients: map[netip.Addr]int{}, pairs: map[pair]int{}, paused: map[pair]time.Time{},
		dirty: map[model.ServiceKey]struct{}{},
	}
}

func idOfQuery(q *query) waitID {
	return waitID{from: q.from.addr, id: q.msg.Id, qtype: q.qtype, name: q.name, tcp: q.from.tcp}
}

// add parks a query for at most d. False: answer it at once.
func (l *lot) add(q *query, key model.ServiceKey, d time.Duration) bool {
	now, id := l.now(), idOfQuery(q)
	p := pair{q.from.addr.Addr(), q.name}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiters[id] != nil {
		return true
	}
	if until, ok := l.paused[p]; ok && now.Before(until) {
		return false
	}
	if len(l.waiters) >= maxParked || l.clients[p.client] >= maxPerClient || l.pairs[p] >= maxPerPair {
		l.metrics.unparked(shed, 0)
		return false
	}
	w := &waiter{q: q, id: id, key: key, since: now, deadline: now.Add(d)}
	l.waiters[id] = w
	if l.byKey[key] == nil {
		l.byKey[key] = map[*waiter]struct{}{}
	}
	l.byKey[key][w] = struct{}{}
	l.clients[p.client]++
	l.pairs[p]++
	l.metrics.parked.Set(float64(len(l.waiters)))
	if l.next.IsZero() || w.deadline.Before(l.next) {
		l.ring()
	}
	return true
}

// remove takes a query out; false if somebody else has done so.
func (l *lot) remove(q *query, result string) bool {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waiters[idOfQuery(q)]
	if w == nil {
		return false
	}
	l.take(w)
	if result == expired {
		l.pauseFor(pair{q.from.addr.Addr(), q.name}, now)
	}
	l.metrics.unparked(result, now.Sub(w.since))
	return true
}

func (l *lot) take(w *waiter) {
	p := pair{w.id.from.Addr(), w.id.name}
	delete(l.waiters, w.id)
	delete(l.byKey[w.key], w)
	if len(l.byKey[w.key]) == 0 {
		delete(l.byKey, w.key)
	}
	if l.clients[p.client]--; l.clients[p.client] == 0 {
		delete(l.clients, p.client)
	}
	if l.pairs[p]--; l.pairs[p] == 0 {
		delete(l.pairs, p)
	}
	l.metrics.parked.Set(float64(len(l.waiters)))
}

func (l *lot) pauseFor(p pair, now time.Time) {
	if len(l.paused) >= maxPaused {
		for o, until := range l.paused {
			if now.After(until) || len(l.paused) >= maxPaused {
				delete(l.paused, o)
			}
		}
	}
	l.paused[p] = now.Add(pause)
}

// changed says that a Service's names may have changed. It does not block.
func (l *lot) changed(key model.ServiceKey) {
	l.mu.Lock()
	_, waited := l.byKey[key]
	if waited {
		l.dirty[key] = struct{}{}
	}
	l.mu.Unlock()
	if waited {
		l.ring()
	}
}

// cancel forgets the queries of a closed connection.
func (l *lot) cancel(c *tcpConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for id, w := range l.waiters {
		if id.tcp == c {
			l.take(w)
			l.metrics.unparked(cancelled, now.Sub(w.since))
		}
	}
}

func (l *lot) ring() {
	select {
	case l.bell <- struct{}{}:
	default: // rung already
	}
}

// run ends waits until ctx ends; what is parked then is cancelled.
func (l *lot) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer l.cancelAll()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.bell:
		case <-timer.C:
		}
		for _, q := range l.affected() {
			l.again(q, false)
		}
		due, next := l.due()
		for _, q := range due {
			l.again(q, true)
		}
		timer.Reset(next)
	}
}

// affected takes the queries whose Service changed.
func (l *lot) affected() (list []*query) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.dirty {
		for w := range l.byKey[key] {
			list = append(list, w.q)
		}
	}
	clear(l.dirty)
	return list
}

// due lists the queries whose time is over, and how long until the next one's;
// again then removes them. maxParked is small enough to look at all of them.
func (l *lot) due() (list []*query, next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	next = time.Hour
	l.next = time.Time{}
	for _, w := range l.waiters {
		left := w.deadline.Sub(now)
		if left <= 0 {
			list = append(list, w.q)
		} else if left < next {
			next, l.next = left, w.deadline
		}
	}
	return list, next
}

func (l *lot) cancelAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiters {
		l.take(w)
		l.metrics.unparked(cancelled, l.now().Sub(w.since))
	}
}
