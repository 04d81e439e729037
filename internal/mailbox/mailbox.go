package mailbox

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// Mailbox is a queue that coalesces events by key. The zero value is not usable; see New.
type Mailbox struct {
	bell chan struct{}

	mu     sync.Mutex
	at     map[any]int // key → index in events
	events []model.Event
	// The changes of Services and EndpointSlices that are queued, and those that were
	// drained and are not committed yet.
	inBox, drained Changes
}

// Changes is a summary of pending changes of Services and EndpointSlices.
type Changes struct {
	Services, Slices int
	Oldest           time.Time // when the oldest of them was received; zero if there are none
}

func (c Changes) and(d Changes) Changes {
	return Changes{c.Services + d.Services, c.Slices + d.Slices, earlier(c.Oldest, d.Oldest)}
}

// New returns an empty Mailbox.
func New() *Mailbox {
	return &Mailbox{
		bell: make(chan struct{}, 1), // notify channel: one pending notification is enough
		at:   make(map[any]int),
	}
}

// Keys of events that are not about a keyed object. They have separate types, so
// that the name of a node cannot be mistaken for the name of a source.
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

// keyOf returns the key by which an event is coalesced; nil for an event without
// content.
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

// Put adds events and notifies the consumer. Events of one call are drained together.
// An event of the same key that has not been drained yet is replaced: object and
// Problems are those of the newest event, Trigger and Received those of the oldest,
// because latency counts from the first change that is not in the kernel. The place
// in the queue is that of the oldest, too.
//
// Example: two updates of one EndpointSlice, received at 10:00:00 and 10:00:01, are
// drained as one event with the second state and Received 10:00:00.
func (m *Mailbox) Put(events ...model.Event) {
	if !m.add(events) {
		return
	}
	select {
	case m.bell <- struct{}{}:
	default: // a notification is pending already
	}
}

// add queues the events, and reports whether any of them has content.
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

// earlier returns the earlier of two times; a zero time counts as unknown.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// Bell returns the notify channel. It receives a value when there are events to
// Drain. A notification may be spurious: Drain can then return no events.
func (m *Mailbox) Bell() <-chan struct{} { return m.bell }

// Drain removes and returns all events, oldest first.
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
	// has 100 000 keys: release that memory.
	if len(m.at) > 1024 {
		m.at = make(map[any]int)
	} else {
		clear(m.at)
	}
	return events
}

// Len returns the number of queued events.
func (m *Mailbox) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.events)
}

// Committed records that all events drained so far are in the kernel. An observer of
// the engine's syncs calls it, on the engine's goroutine.
func (m *Mailbox) Committed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drained = Changes{}
}

// Waiting returns a summary of the changes that are not in the kernel yet, drained or not.
func (m *Mailbox) Waiting() Changes {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.drained.and(m.inBox)
}

// count updates the summary of queued changes. m.mu is held.
func (m *Mailbox) count(e *model.Event, replaces bool) {
	n := 1
	if replaces { // the same object again: it counts as one change
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
