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
	syncedKey string
	originKey string
	soleKey   uint8
)

const (
	hostKey soleKey = iota
	cidrsKey
)

// keyOf tells under which key an event is coalesced; nil for an event that
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
	case e.Synced != "":
		return syncedKey(e.Synced)
	case e.Origin != "":
		return originKey(e.Origin)
	}
	return nil
}

// Put adds one event and rings the bell. An event of the same key that has not
// been drained yet is replaced: object and Problems are those of the newest,
// Trigger and Received those of the oldest, because latency counts from the
// first change that the kernel has not seen. The place in the order is the
// oldest's, too.
func (m *Mailbox) Put(e model.Event) {
	key := keyOf(&e)
	if key == nil {
		return
	}
	m.mu.Lock()
	if i, ok := m.at[key]; ok {
		old := &m.events[i]
		e.Trigger, e.Received = earlier(old.Trigger, e.Trigger), earlier(old.Received, e.Received)
		*old = e
	} else {
		m.at[key] = len(m.events)
		m.events = append(m.events, e)
	}
	m.mu.Unlock()
	select {
	case m.bell <- struct{}{}:
	default: // rung already
	}
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
	// A cleared map keeps its buckets, and the first list of a large cluster
	// has 100 000 keys: give those back.
	if len(m.at) > 1024 {
		m.at = make(map[any]int)
	} else {
		clear(m.at)
	}
	return events
}

// Len tells how many events wait.
func (m *Mailbox) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.events)
}
