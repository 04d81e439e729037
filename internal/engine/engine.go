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
	// Sources that must have said Synced before anything is changed or removed.
	Sources []string
	// SyncLimit is how long the engine waits for them before it writes anything at
	// all (1 min); see scope.
	SyncLimit time.Duration
	MinSync   time.Duration // least time between the end of a sync and the next start (0)
	// Pace makes that time longer where a write costs what exists, not what
	// changed: so many times what the last write took, up to a second. 0 = none.
	Pace     int
	Audit    time.Duration // comparison with the kernel even without an alarm (1 h)
	ChunkOps int           // kernel operations per transaction while building (12 000)
	// Inert is that of the driver's Caps.
	Inert func(dataplane.Key) bool
	// MaxBackends is how many backends of a Frontend the driver serves; 0 is no limit.
	MaxBackends int
	// Unsupported is dataplane.Caps.Unsupported.
	Unsupported func(*model.Frontend) string
	OneList     bool // dataplane.Caps.OneList
	Now         func() time.Time
	Log         *slog.Logger
	// OnTurn is called after each turn that did or tried something, on the
	// engine's goroutine: it must not block. The Turn is valid during the call.
	OnTurn func(*Turn)
	// BeforeWrite is called with what a turn is about to write, before it does: a
	// write that fails may have been done. It must not block either.
	BeforeWrite func([]Decided)
}

// Engine owns the straight line from event to kernel.
type Engine struct {
	p        Params
	st       *state.State
	services *policy.Services
	tr       *delta.Tracker[dataplane.Key, owner]
	alarm    chan struct{}       // a bell, size 1: somebody may have changed our rules
	inspect  chan func()         // size 0: a closure that reads engine state, run between turns
	wanted   chan chan<- Audited // size 0: somebody wants the kernel compared now
	auditors []chan<- Audited    // who waits for the next comparison
	surveys  []*survey           // that read the kernel beside us
	drained  time.Time           // when the driver was last asked what it has drained
	view     model.NodeView
	turn     Turn

	started  time.Time
	waiting  map[string]bool // sources not yet synced; true: all that can be read is listed
	belief   belief
	rebuild  map[model.Family]string // while broken: the families to be made anew, and why
	written  int                     // transactions since the last Load
	audit    time.Time               // the next one
	gaveWay  int                     // times this audit was abandoned for a change
	lastEnd  time.Time               // of the last turn that wrote
	rested   time.Time               // when the pauses are over that writes have asked for
	hurry    bool                    // what waits takes endpoints away
	retryAt  time.Time               // after a failure
	failures int                     // turns in a row
	owed     time.Time               // when a turn that could not do all its work goes on; zero: nothing is left
	watching watching
	left     left

	dirty    map[model.ServiceKey]struct{}         // to be decided again
	untold   map[model.ServiceKey]*model.Service   // changed since the followers were told; as they know it
	tried    map[model.ServiceKey][]*model.Service // other states that a write since then may have put in
	toldView bool                                  // they know view
	held     map[owner]*quarantine
	leaving  map[model.ServiceKey][]departure
	withheld map[model.ServiceKey]struct{} // Services of which a Frontend is withheld; see leftovers.go
	troubled map[any][]model.Problem       // by event key, or decision
	objs     []delta.Object[dataplane.Key] // of one Service; kept for its memory alone
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

// Run works until ctx ends. It returns an error only if what is ours by name turns
// out to be somebody else's at the first look. The rules stay in place.
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
