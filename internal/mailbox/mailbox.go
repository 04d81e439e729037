package mailbox

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// Mailbox coalesces events by key. The zero value is not usable; see New.
type Mailbox struct {
	bell chan struct{}

	mu     sync.Mutex
	at     map[any]int // key → index in events
	events []model.Event
	// The changes of Services and EndpointSlices that are in the box, and those that
	// were drained and are not committed yet.
	inBox, drained Changes
}

// Changes sums up changes of Services and EndpointSlices.
type Changes struct {
	Services, Slices int
	Oldest           time.Time // when the oldest of them came in; zero if there are none
}

func (c Changes) and(d Changes) Changes {
	return Changes{c.Services + d.Services, c.Slices + d.Slices, earlier(c.Oldest, d.Oldest)}
}

// New makes an empty Mailbox.
func New() *Mailbox {
	return &Mailbox{
		bell: make(chan struct{}, 1), // a bell: one pending ring says all there is to say
		at:   make(map[any]int),
	}
}

// Keys of what is not a keyed object. Types of their own, so that no name of
// a node can be mistaken for the name of a source.
type (
	nodeKey   string
	listedKey string
	syncedKey string
	originKey string
	soleKey   uint8
)

const (
	hostKey soleKey = iota
	cidrsKey
	exclusionsKey
	clusterKey
)

// keyOf reports under which key an event is coalesced; nil for an event that
// says nothing.
func keyOf(e *model.Event) any {
	switch {
	case e.Service != nil:
		return e.Service.Key
	case e.Slice != nil:
		return e.Slice.Key
	case e.Node != nil:
		return nodeKey(e.Node.Key)
	case e.Host != nil:
		return hostKey
	case e.CIDRs != nil:
		return cidrsKey
	case e.Exclusions != nil:
		return exclusionsKey
	case e.Cluster:
		return clusterKey
	case e.Listed != "":
		return listedKey(e.Listed)
	case e.Synced != "":
		return syncedKey(e.Synced)
	case e.Origin != "":
		return originKey(e.Origin)
	}
	return nil
}

// Put adds events and rings the bell. Several at once are drained together. An event
// of the same key that has not been drained yet is replaced: object and Problems are
// those of the newest, Trigger and Received those of the oldest, because latency
// counts from the first change that the kernel has not seen. The place in the order
// is the oldest's, too.
func (m *Mailbox) Put(events ...model.Event) {
	if !m.add(events) {
		return
	}
	select {
	case m.bell <- struct{}{}:
	default: // rung already
	}
}

// add reports whether any of the events says something.
func (m *Mailbox) add(events []model.Event) (any bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range events {
		e := &events[i]
		key := keyOf(e)
		if key == nil {
			continue
		}
		any = true
		at, replaces := m.at[key]
		m.count(e, replaces)
		if !replaces {
			m.at[key] = len(m.events)
			m.events = append(m.events, *e)
			continue
		}
		old := &m.events[at]
		trigger, received := earlier(old.Trigger, e.Trigger), earlier(old.Received, e.Received)
		*old = *e
		old.Trigger, old.Received = trigger, received
	}
	return any
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// Bell is the channel that gets a value when there is something to Drain. A
// ring may be spurious: Drain can then return nothing.
func (m *Mailbox) Bell() <-chan struct{} { return m.bell }

// Drain takes all events out, oldest first.
func (m *Mailbox) Drain() []model.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.events
	if events == nil {
		return nil
	}
	m.events = nil
	m.drained, m.inBox = m.drained.and(m.inBox), Changes{}
	// A cleared map keeps its buckets, and the first list of a large cluster
	// has 100 000 keys: give those back.
	if len(m.at) > 1024 {
		m.at = make(map[any]int)
	} else {
		clear(m.at)
	}
	return events
}

// Len reports how many events wait.
func (m *Mailbox) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.events)
}

// Committed says that all that was drained so far is in the kernel. The engine's
// goroutine calls it, through whoever follows the engine's turns.
func (m *Mailbox) Committed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drained = Changes{}
}

// Waiting reports which changes are not in the kernel yet, drained or not.
func (m *Mailbox) Waiting() Changes {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.drained.and(m.inBox)
}

func (m *Mailbox) count(e *model.Event, replaces bool) {
	n := 1
	if replaces { // the same object again: the kernel has one change to see
		n = 0
	}
	switch {
	case e.Service != nil:
		m.inBox.Services += n
	case e.Slice != nil:
		m.inBox.Slices += n
	default:
		return
	}
	m.inBox.Oldest = earlier(m.inBox.Oldest, e.Received)
}
