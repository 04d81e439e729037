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

// Mailbox is the queue of events; package mailbox implements it. The engine's goroutine calls Bell and Drain. Len is also
// called by the goroutine that preempts an audit.
type Mailbox interface {
	Bell() <-chan struct{} // receives a value when there are events
	Drain() []model.Event  // removes and returns all events, oldest first
	Len() int              // number of queued events
}

// Params configure an Engine. Zero durations and counts mean the defaults in parentheses.
type Params struct {
	Driver   dataplane.Driver
	Families []model.Family
	Mailbox  Mailbox
	View     policy.ViewInputs // the static part
	NodeName string            // of this node, in Nodes and in EndpointSlices
	// Sources that must have reported Synced before any object is updated or removed.
	Sources []string
	// SyncLimit is how long the engine waits for the sources before its first write
	// (1 min); see scope.
	SyncLimit time.Duration
	MinSync   time.Duration // least time between the end of a sync that wrote and the start of the next (0)
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
	OneList     bool             // dataplane.Caps.OneList
	Now         func() time.Time // the clock (time.Now)
	Log         *slog.Logger     // (discards)
	// OnTurn is called after each sync that did or attempted something, on the
	// engine's goroutine: it must not block. The Turn is valid during the call.
	OnTurn func(*Turn)
	// BeforeWrite is called with the decisions that a sync is about to write, because a
	// write that fails may have been applied. It must not block either.
	BeforeWrite func([]Decided)
}

// Engine is the control loop from events to the kernel. One sync (step) has these parts, in this order:
//
//	fold        drains the events into state, and marks the Services that may be affected as dirty
//	gate, scope decide whether the engine may write now, and which part of the pending changes
//	decideDirty lets policy decide the dirty Services and the driver render them: this is the desired state
//	reconcile   reads the kernel if the sync state requires it (Load), then applies the difference (Apply)
//	finish      notifies the observers of the decisions that the kernel now has (OnTurn)
//
// Partial sync, full sync, restart, retry and repair are the same five parts. They differ only in whether Load refreshed the
// actual state before the difference was computed; belief decides that.
//
// Example: nftables mode, all sources synced. Service shop/web, 10.96.0.10:80 and NodePort 30080, has the endpoints
// 10.244.1.5, 10.244.2.7 and 10.244.3.9 in one EndpointSlice, and the slice loses 10.244.3.9. The source puts one event into
// the mailbox, and Run wakes up.
//
//  1. fold: State.Apply replaces the slice and returns shop/web as dirty. The Service has one slice, so the endpoint cannot
//     have moved to another one, and its removal is not held (rebalance.go).
//  2. decideDirty: policy returns two Frontends, 10.96.0.10:80/TCP and *4:30080/TCP, with the two Backends that remain. Render
//     returns their objects, and Tracker.Set compares them with the actual state: the chains lb-a-2 and ext-np-2 are to be
//     created, the two pools of endpoints and the two elements of services and nodeports are to be changed.
//  3. reconcile: the actual state is in sync, so nothing is read. Apply gets one Batch and commits one transaction, and
//     Tracker.Commit makes the desired state the actual one.
//  4. finish: OnTurn gets a Turn with Decided {shop/web}, so that the observers can, for example, clean up conntrack entries.
//
// If Apply fails, its error decides what follows:
//
//	InvalidError   the kernel rejected objects of shop/web: the Service is quarantined with its old three endpoints, all
//	               other changes are applied in the same sync, and it is retried after 10 s, 20 s, ... 30 min
//	ErrConflict    another program wrote: Load, report the drift, apply the new difference, at most maxRounds times
//	RebuildError   the objects of a family cannot be repaired one by one: one transaction replaces all of them
//	other errors   retry after a backoff (50 ms to 30 s); if the write may have been applied, the driver is queried first
//
// Guaranteed: the kernel gets the changes that one sync makes to existing objects of one Service in one transaction. New
// objects come before those that publish them, deletions come last. Until every source is synced, or has delivered all that
// it can read, no rule in use is changed (scope). A Service that the kernel rejects delays no other one. The observers get a
// decision before it is written (BeforeWrite), and again when the kernel has it (OnTurn).
//
// Not guaranteed: that each state of an object reaches the kernel (events of one object are coalesced); an order among
// Services; a quarantine if the rejected objects belong to the base (then the whole sync fails and is retried).
//
// Goroutines: Run owns all fields. Audit, Look and Inspect may be called by any goroutine; they wait for Run, so they return
// only while Run runs or when their ctx ends. The driver's Watch has a goroutine of its own, which only raises alarms.
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
