package engine

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/delta"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
	"github.com/fairlead/fairlead/internal/state"
)

// Mailbox is where the events come from.
type Mailbox interface {
	Bell() <-chan struct{}
	Drain() []model.Event
	Len() int
}

// Params configure an Engine. Zero durations and counts mean the defaults given.
type Params struct {
	Driver   dataplane.Driver
	Families []model.Family
	Mailbox  Mailbox
	View     policy.ViewInputs // the static part
	NodeName string
	// Sources that must have said Synced before anything is written or removed.
	Sources []string
	// SyncLimit bounds that wait (1 min); after it the engine adds what it
	// knows, but deletes nothing until they all have.
	SyncLimit time.Duration
	MinSync   time.Duration // least time between the end of a sync and the next start (0)
	// Pace makes that time longer where a write costs what exists, not what
	// changed: so many times what the last write took, up to a second. 0 = none.
	Pace     int
	Audit    time.Duration // comparison with the kernel even without an alarm (1 h)
	ChunkOps int           // kernel operations per transaction while building (12 000)
	Now      func() time.Time
	Log      *slog.Logger
	// OnTurn is called after each turn that did or tried something, on the
	// engine's goroutine: it must not block. The Turn is valid during the call.
	OnTurn func(*Turn)
}

// Engine owns the straight line from event to kernel.
type Engine struct {
	p        Params
	st       *state.State
	services *policy.Services
	tr       *delta.Tracker[dataplane.Key, owner]
	alarm    chan struct{} // a bell, size 1: somebody may have changed our rules
	inspect  chan func()   // size 0: a closure that reads engine state, run between turns
	view     model.NodeView
	turn     Turn

	waiting  map[string]bool // sources not yet synced; true = they have told what they can read for now
	started  time.Time
	loaded   bool                    // have was read from the kernel at least once
	suspect  bool                    // have must be read again before the next write
	rebuild  map[model.Family]string // families to be made anew, and why
	doubt    bool                    // a write failed, and perhaps only its answer was lost
	ours     bool                    // what the next Load finds different is our own doing: no drift
	audit    time.Time               // next audit
	routine  bool                    // suspect for no reason but that: the Load may give way
	gaveWay  int                     // how often it has
	lastEnd  time.Time               // of the last turn that wrote
	pause    time.Duration           // after it
	retryAt  time.Time
	failures int
	held     map[owner]*quarantine
	watching watching
	troubled map[any][]string // by event key: objects with problems
}

// owner of objects in the tracker: a Service, or the base (zero value).
type owner = model.ServiceKey

// New makes an Engine.
func New(p Params) *Engine {
	if p.SyncLimit == 0 {
		p.SyncLimit = time.Minute
	}
	if p.Audit == 0 {
		p.Audit = time.Hour
	}
	if p.ChunkOps == 0 {
		p.ChunkOps = 12_000
	}
	if p.Now == nil {
		p.Now = time.Now
	}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		p: p, st: state.New(), services: policy.NewServices(),
		alarm: make(chan struct{}, 1), inspect: make(chan func()),
		waiting: map[string]bool{}, held: map[owner]*quarantine{}, suspect: true,
		troubled: map[any][]string{}, rebuild: map[model.Family]string{},
	}
	for _, s := range p.Sources {
		e.waiting[s] = false
	}
	e.tr = delta.New[dataplane.Key, owner](delta.Params[dataplane.Key]{
		Width: p.Driver.Width, Linger: p.Driver.Linger,
		Rank: func(k dataplane.Key) uint8 { return uint8(k.Kind) },
	})
	return e
}

// Run works until ctx ends. It returns an error only if going on makes no sense
// (what is ours by name belongs to somebody else, or the kernel cannot do it).
// The rules stay in place.
func (e *Engine) Run(ctx context.Context) error {
	e.started = e.p.Now()
	e.audit = e.started.Add(e.p.Audit)
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer e.joinWatch()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.p.Mailbox.Bell():
		case <-timer.C:
		case f := <-e.inspect:
			f()
			continue
		case err := <-e.watching.ended:
			e.watchEnded(ctx, err)
		case <-e.alarm:
			e.onAlarm(ctx)
		}
		if err := e.step(ctx); err != nil {
			return err
		}
		if e.loaded {
			e.startWatch(ctx)
		}
		timer.Reset(e.untilNext())
	}
}

// Inspect runs f on the engine's goroutine between two turns and waits for it.
func (e *Engine) Inspect(ctx context.Context, f func(View)) error {
	done := make(chan struct{})
	select {
	case e.inspect <- func() { f(View{e}); close(done) }:
		<-done
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// untilNext is how long the loop may sleep if no bell rings.
func (e *Engine) untilNext() time.Duration {
	now := e.p.Now()
	next := e.audit
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	sooner(e.retryAt)
	if e.loaded && e.watching.ended == nil { // before, reconcile tries it again when it must
		sooner(e.watching.retryAt)
	}
	sooner(e.tr.Expire(now))
	for _, q := range e.held {
		if !q.trial {
			sooner(q.retryAt)
		}
	}
	if !e.loaded {
		sooner(e.started.Add(e.p.SyncLimit))
	}
	if e.pause > 0 && (e.tr.PendingCount() > 0 || e.suspect) {
		sooner(e.lastEnd.Add(e.pause))
	} else if e.tr.PendingCount() > 0 && e.retryAt.IsZero() && e.ready(now) && e.canPrune() {
		sooner(now)
	}
	return max(next.Sub(now), time.Millisecond)
}

// ready tells whether the engine may write: every source has told what it can
// read, or the limit is over.
func (e *Engine) ready(now time.Time) bool {
	if now.Sub(e.started) >= e.p.SyncLimit {
		return true
	}
	for _, listed := range e.waiting {
		if !listed {
			return false
		}
	}
	return true
}

// canPrune tells whether the engine knows everything that should exist.
func (e *Engine) canPrune() bool { return len(e.waiting) == 0 }

// backoff after n failures in a row: 50 ms doubling to 30 s, with jitter so that
// a fleet does not retry in step.
func backoff(n int) time.Duration {
	d := 50 * time.Millisecond << min(n, 10)
	d = min(d, 30*time.Second)
	return d/2 + rand.N(d/2+1)
}
