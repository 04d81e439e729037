package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/delta"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
	"github.com/fairlead/fairlead/internal/state"
)

// Mailbox is the queue of events.
type Mailbox interface {
	Bell() <-chan struct{}
	Drain() []model.Event
	Len() int
}

// Params configure an Engine. Zero durations and counts mean the defaults in parentheses.
type Params struct {
	Driver   dataplane.Driver
	Families []model.Family
	Mailbox  Mailbox
	View     policy.ViewInputs // the static part
	NodeName string
	// Sources that must have reported Synced before any object is updated or removed.
	Sources []string
	// SyncLimit is how long the engine waits for the sources before its first write
	// (1 min); see scope.
	SyncLimit time.Duration
	MinSync   time.Duration // least time between the end of a sync and the start of the next (0)
	// Pace extends that time where the cost of a write depends on the number of existing
	// objects, not of changed ones: Pace times the duration of the last write, at most a
	// second. 0 = none.
	Pace     int
	Audit    time.Duration // interval of comparisons with the kernel without an alarm (1 h)
	ChunkOps int           // kernel operations per transaction while building (12 000)
	// Inert is dataplane.Caps.Inert.
	Inert func(dataplane.Key) bool
	// MaxBackends is the largest number of backends per Frontend that the driver serves; 0 is no limit.
	MaxBackends int
	// Unsupported is dataplane.Caps.Unsupported.
	Unsupported func(*model.Frontend) string
	OneList     bool // dataplane.Caps.OneList
	Now         func() time.Time
	Log         *slog.Logger
	// OnTurn is called after each sync that did or attempted something, on the
	// engine's goroutine: it must not block. The Turn is valid during the call.
	OnTurn func(*Turn)
	// BeforeWrite is called with the decisions that a sync is about to write, because a
	// write that fails may have been applied. It must not block either.
	BeforeWrite func([]Decided)
}

// Engine is the control loop from events to the kernel. One sync drains the events, folds them into state, decides the
// dirty Services again, and applies the pending difference between the desired and the actual state.
//
// Example: an EndpointSlice loses an endpoint. The next sync takes the event from the mailbox, state marks the slice's
// Service as dirty, policy decides its Frontends, and the tracker computes the pending objects. The driver applies them
// in one transaction, and OnTurn notifies the observers of the new decision. If the kernel rejects the objects of the
// Service, the engine quarantines that Service and applies all others.
type Engine struct {
	p        Params
	st       *state.State
	services *policy.Services
	tr       *delta.Tracker[dataplane.Key, owner]
	alarm    chan struct{}       // notify channel, size 1: another program may have changed the rules
	inspect  chan func()         // size 0: a closure that reads engine state, run between syncs
	wanted   chan chan<- Audited // size 0: requests an audit now
	auditors []chan<- Audited    // callers that wait for the next comparison
	surveys  []*survey           // surveys that run concurrently with the engine
	drained  time.Time           // when the driver was last queried for unused lingering objects
	view     model.NodeView
	turn     Turn

	started  time.Time
	waiting  map[string]bool // sources not yet synced; true: the source has delivered all that it can read
	belief   belief
	rebuild  map[model.Family]string // while broken: the families to be rebuilt, and why
	written  int                     // transactions since the last Load
	audit    time.Time               // when the next one is due
	gaveWay  int                     // how often this audit was preempted by a change
	lastEnd  time.Time               // of the last sync that wrote
	rested   time.Time               // end of the pause after the last writes (rate limit); see pace.go
	hurry    bool                    // urgent: the pending changes remove endpoints
	retryAt  time.Time               // when to retry after a failure
	failures int                     // failed syncs in a row
	owed     time.Time               // next run for the work that a sync could not complete; zero: no work is left
	watching watching
	left     left

	dirty    map[model.ServiceKey]struct{}         // Services to be decided again
	untold   map[model.ServiceKey]*model.Service   // changed and not reported yet; the value is the state that the observers know
	tried    map[model.ServiceKey][]*model.Service // other states that a write since then may have applied
	toldView bool                                  // view was reported to the observers
	held     map[owner]*quarantine
	leaving  map[model.ServiceKey][]departure
	withheld map[model.ServiceKey]struct{} // Services of which a Frontend is withheld; see leftovers.go
	troubled map[any][]model.Problem       // by event key, or decision
	objs     []delta.Object[dataplane.Key] // of one Service; kept to reuse its memory
}

// owner is the owner of objects in the tracker: a Service, or the base (zero value).
type owner = model.ServiceKey

// New returns an Engine.
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
		p: p, st: state.New(), services: policy.NewServices(), rebuild: map[model.Family]string{},
		alarm: make(chan struct{}, 1), inspect: make(chan func()), wanted: make(chan chan<- Audited),
		waiting: map[string]bool{}, held: map[owner]*quarantine{}, toldView: true,
		dirty: map[model.ServiceKey]struct{}{}, untold: map[model.ServiceKey]*model.Service{},
		tried:   map[model.ServiceKey][]*model.Service{},
		leaving: map[model.ServiceKey][]departure{}, withheld: map[model.ServiceKey]struct{}{}, troubled: map[any][]model.Problem{},
	}
	for _, s := range p.Sources {
		e.waiting[s] = false
	}
	var part func(dataplane.Key) (dataplane.Key, bool)
	if d, has := p.Driver.(dataplane.Parter); has {
		part = d.Part
	}
	e.tr = delta.New[dataplane.Key, owner](delta.Params[dataplane.Key]{
		Width: p.Driver.Width, Linger: p.Driver.Linger, Inert: p.Inert, Shared: p.Driver.Shared, Part: part, Same: dataplane.Same, Sum: e.objectSum,
		Rank: func(k dataplane.Key) uint8 { return uint8(k.Kind) },
	})
	return e
}

// Run runs the loop until ctx ends. It returns an error only if the first read finds that
// another program owns the objects of this agent's names. The rules stay in place.
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
		case to := <-e.wanted:
			e.hurryAudit(to)
		case err := <-e.watching.ended:
			e.watchEnded(ctx, err)
		case <-e.alarm:
			e.onAlarm(ctx)
		}
		if err := e.step(ctx); err != nil {
			return err
		}
		if e.belief != unknown {
			e.startWatch(ctx)
		}
		timer.Reset(e.untilNext())
	}
}

// Inspect runs f on the engine's goroutine between two syncs and waits for it.
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
