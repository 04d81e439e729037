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

// side is the acceleration alone. What of it may be asked by other goroutines is under mu.
type side struct {
	p      Params
	seen   *nft.Ledger
	own    bool // seen is ours alone, and we watch by ourselves
	served []model.Family
	book   book
	// renewed are the devices of flowtables that the transaction under way makes anew, by family.
	renewed [2][]string

	looking   sync.Mutex // guards Finder
	surveying sync.Mutex // guards Reader

	mu    sync.Mutex
	state Status
	tries int       // that failed, in a row
	again time.Time // when what failed is tried again; zero: all is well
}

// book is what the tables hold, as far as a writer must know, by family.
type book struct {
	table     [2]bool
	flowtable [2]bool
	devices   [2][]string // of the flowtable
	chains    [2]map[string]bool
	rulesOf   [2]map[string]bool         // whose rules there are
	members   [2]map[string]int          // how many each set holds
	skipped   map[dataplane.Key]struct{} // members that did not fit into their set
}

func newBook() book {
	return book{chains: [2]map[string]bool{{}, {}}, rulesOf: [2]map[string]bool{{}, {}}, members: [2]map[string]int{{}, {}}, skipped: map[dataplane.Key]struct{}{}}
}

// forget empties what is known of a family's table.
func (b *book) forget(i int, f model.Family) {
	b.table[i], b.flowtable[i], b.devices[i] = false, false, nil
	b.chains[i], b.rulesOf[i], b.members[i] = map[string]bool{}, map[string]bool{}, map[string]int{}
	maps.DeleteFunc(b.skipped, func(k dataplane.Key, _ struct{}) bool { return k.Family == f })
}

// Status is how the acceleration is.
type Status struct {
	Threshold int    // packets; 0: it is off
	Why       string // why it is off or not whole, "" if it is well or was not asked for
	Devices   int    // in the flowtable of the family that has most
	// Refused counts by reason what could not be: "kernel" (transactions), "device", "full" (Service ports), "fault" (all of
	// it, because this kernel breaks connections).
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

// The pause after a failure doubles from the first to the last.
const (
	firstPause = time.Second
	lastPause  = 5 * time.Minute
)

// fail notes that the kernel may not hold what the engine believes: after a pause Changed says so, and a Load finds out.
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
		s.p.Log.Warn("the acceleration of Services is not as it should be; Services are served, and it is tried again", "what", what, "error", err)
	}
}

// well notes that a transaction went in.
func (s *side) well() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries, s.again = 0, time.Time{}
	if s.state.Threshold > 0 {
		s.state.Why = ""
	}
}

// due reports whether it is time to look again after a failure.
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

// duePeriod is how often watch looks whether something is due.
const duePeriod = time.Second

// watch rings when something is due, and, with a ledger of our own, when somebody writes in our table. It ends with ctx.
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

// listen hears of commits, again and again.
func (s *side) listen(ctx context.Context, changed func()) {
	for ctx.Err() == nil {
		err := s.p.Kernel.Watch(ctx, func(m nft.Move) {
			if s.seen.Hear(m.Generation, !m.Lost && !anyTable(m.Tables)) {
				changed()
			}
		})
		s.seen.Unwatched()
		if err != nil && ctx.Err() == nil {
			s.p.Log.Debug("watching the acceleration's table ended, will begin again", "error", err)
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
