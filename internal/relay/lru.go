package relay

import (
	"container/list"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// streamAfter is how old a flow is whose next datagram makes it a stream, once it has been
// answered (nf_conntrack_proto_udp.c, Linux 5.0).
const streamAfter = 2 * time.Second

// lru is the UDP flows of one Service in the order of their last datagram, longest idle
// first. Flows that are no streams are in a list of their own: they are evicted before any
// stream, as conntrack evicts entries that are not assured (early_drop).
type lru struct {
	mu      sync.Mutex
	brief   list.List // of *flow
	streams list.List // of *flow
	users   int       // flows that were started and have not ended; guarded by lrus.mu
}

// lrus are the flows of all Services.
type lrus struct {
	mu sync.Mutex
	by map[model.ServiceKey]*lru
}

// enter adds a flow to those of its Service.
func (x *lrus) enter(svc model.ServiceKey, f *flow) {
	x.mu.Lock()
	l := x.by[svc]
	if l == nil {
		l = &lru{}
		x.by[svc] = l
	}
	l.users++
	x.mu.Unlock()
	f.lru = l
	l.mu.Lock()
	defer l.mu.Unlock()
	f.place = f.list().PushBack(f)
}

// leave removes a flow that has ended. It returns false if the flow was evicted for another
// one, which now owns its descriptor and its port.
func (x *lrus) leave(svc model.ServiceKey, f *flow) (holds bool) {
	l := f.lru
	l.mu.Lock()
	if holds = f.place != nil; holds {
		f.list().Remove(f.place)
		f.place = nil
	}
	l.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(x.by, svc)
	}
	return holds
}

// displace evicts a flow to make room for a new one of its Service: the longest idle one
// that is no stream, else the longest idle stream if it has been idle for udpNew. It returns
// the flow, or nil if there is none.
func (x *lrus) displace(svc model.ServiceKey, now time.Time) *flow {
	x.mu.Lock()
	l := x.by[svc]
	x.mu.Unlock()
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.brief.Front()
	if e == nil {
		if e = l.streams.Front(); e == nil || now.Sub(e.Value.(*flow).last) < udpNew {
			return nil
		}
	}
	f := e.Value.(*flow)
	f.list().Remove(e)
	f.place = nil
	return f
}

// list returns the list that contains the flow; lru.mu is held.
func (f *flow) list() *list.List {
	if f.stream {
		return &f.lru.streams
	}
	return &f.lru.brief
}

// touch records a datagram of the flow: the client's, or the endpoint's answer.
func (f *flow) touch(now time.Time, answer bool) {
	f.lru.mu.Lock()
	defer f.lru.mu.Unlock()
	f.last = now
	stream := f.stream || f.answered && now.Sub(f.began) > streamAfter
	f.answered = f.answered || answer
	switch {
	case f.place == nil: // it was evicted
	case stream == f.stream:
		f.list().MoveToBack(f.place)
	default:
		f.list().Remove(f.place)
		f.stream = stream
		f.place = f.list().PushBack(f)
	}
}

// left returns how long the flow may stay open without a datagram.
func (f *flow) left() time.Duration {
	f.lru.mu.Lock()
	defer f.lru.mu.Unlock()
	limit := udpNew
	if f.stream {
		limit = udpStream
	}
	return time.Until(f.last.Add(limit))
}
