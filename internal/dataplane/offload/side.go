package offload

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// side is the acceleration without the wrapped driver. mu guards the fields that other goroutines may read.
type side struct {
	p      Params
	seen   *nft.Ledger
	own    bool // seen is not shared with the wrapped driver, and side watches by itself
	served []model.Family
	book   book
	// renewed holds, by family, the devices of a flowtable that the current transaction rebuilds.
	renewed [2][]string

	looking   sync.Mutex // guards Finder
	surveying sync.Mutex // guards Reader

	mu    sync.Mutex
	state Status
	tries int       // consecutive failures
	again time.Time // time of the next retry; zero: the last operation succeeded
}

// book is the state of the tables that the writer needs, by family.
type book struct {
	table     [2]bool
	flowtable [2]bool
	devices   [2][]string // of the flowtable
	chains    [2]map[string]bool
	rulesOf   [2]map[string]bool         // the ids whose rules exist
	members   [2]map[string]int          // number of elements of each set
	skipped   map[dataplane.Key]struct{} // members that did not fit into their set
}

func newBook() book {
	return book{chains: [2]map[string]bool{{}, {}}, rulesOf: [2]map[string]bool{{}, {}}, members: [2]map[string]int{{}, {}}, skipped: map[dataplane.Key]struct{}{}}
}

// forget clears the state of the table of a family.
func (b *book) forget(i int, f model.Family) {
	b.table[i], b.flowtable[i], b.devices[i] = false, false, nil
	b.chains[i], b.rulesOf[i], b.members[i] = map[string]bool{}, map[string]bool{}, map[string]int{}
	maps.DeleteFunc(b.skipped, func(k dataplane.Key, _ struct{}) bool { return k.Family == f })
}

// Status is the state of the acceleration.
type Status struct {
	Threshold int    // packets; 0: it is off
	Why       string // why it is off or incomplete; "" if it works or was not requested
	Devices   int    // number of devices in the flowtable of the family that has the most
	// Refused counts failures by reason: "kernel" (rejected transactions), "device", "full" (Service ports), "fault" (the whole
	// acceleration, because this kernel breaks connections).
	Refused map[string]uint64
}

func (s *side) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.state
	out.Refused = maps.Clone(out.Refused)
	return out
}

func (s *side) tell(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
}

// The backoff after a failure doubles from firstPause up to lastPause.
const (
	firstPause = time.Second
	lastPause  = 5 * time.Minute
)

// fail records that the actual state in the kernel may differ from the state that the engine assumes. After a backoff Changed reports
// this, and the Load that follows resyncs.
func (s *side) fail(what string, err error) {
	s.mu.Lock()
	pause := min(firstPause<<min(s.tries, 16), lastPause)
	s.tries++
	first := s.tries == 1
	s.again = s.p.Now().Add(pause)
	s.state.Why = what + ": " + err.Error()
	s.state.Refused["kernel"]++
	s.mu.Unlock()
	if first {
		s.p.Log.Warn("cannot write the offload rules; Services are served without acceleration; trying again", "what", what, "error", err)
	}
}

// well records that a transaction or a read succeeded.
func (s *side) well() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries, s.again = 0, time.Time{}
	if s.state.Threshold > 0 {
		s.state.Why = ""
	}
}

// due reports whether the backoff after a failure has expired.
func (s *side) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.again.IsZero() && !s.again.After(s.p.Now())
}

// changed is Driver.Changed.
func (s *side) changed(ctx context.Context) (bool, error) {
	if s.due() {
		return true, nil
	}
	if !s.own || s.seen.Knows() == 0 {
		return false, nil
	}
	g, err := s.p.Kernel.Generation(ctx)
	if err != nil {
		return false, nil //nolint:nilerr // no reason to doubt the Services
	}
	return !s.seen.Settled(ctx, g), nil
}

// duePeriod is the interval at which watch checks due.
const duePeriod = time.Second

// watch calls changed when a retry is due, and, if the ledger is its own, when another program writes to a table of this package.
// It returns when ctx is done.
func (s *side) watch(ctx context.Context, changed func()) {
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		if s.own {
			s.listen(ctx, changed)
		}
	}()
	tick := time.NewTicker(duePeriod)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			if s.due() {
				changed()
			}
		}
	}
	<-listening
}

// listen handles the kernel's notifications of commits, and restarts the watch when it ends.
func (s *side) listen(ctx context.Context, changed func()) {
	for ctx.Err() == nil {
		err := s.p.Kernel.Watch(ctx, func(m nft.Move) {
			if s.seen.Hear(m.Generation, !m.Lost && !anyTable(m.Tables)) {
				changed()
			}
		})
		s.seen.Unwatched()
		if err != nil && ctx.Err() == nil {
			s.p.Log.Debug("the watch on the offload tables failed; it will be restarted", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(firstPause):
		}
	}
}

func anyTable(list []nft.TableRef) bool {
	for _, t := range list {
		if IsTable(t) {
			return true
		}
	}
	return false
}
