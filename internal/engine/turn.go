package engine

import (
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// Phase is a part of a turn.
type Phase uint8

// The phases of a turn, in order.
const (
	PhaseState  Phase = iota
	PhasePolicy       // decide and render, which alternate Service by Service
	PhaseLoad
	PhaseApply
	NumPhases int = iota
)

// Turn tells what one turn of the loop did: the Commit of the design, also when
// nothing could be committed.
type Turn struct {
	Started, Done time.Time // Started is when the changes had been taken out of the mailbox
	// Waits: nothing was tried, because sources are not in yet or a pause lasts. Only
	// Problems and Well tell anything.
	Waits      bool
	Phases     [NumPhases]time.Duration
	Err        error // nil: everything that was pending is in the kernel, quarantined Services apart
	Complete   bool  // every source is in, or has delivered all that it can read
	Full       bool  // compared with what the kernel holds (start, audit, conflict)
	Operations int   // kernel objects written
	Batches    int
	Reads      int // dumps and queries
	Conflicts  int

	events                     int        // of all sorts
	reported                   []reported // objects of which something was learned, perhaps repeatedly
	ServiceEvents, SliceEvents int
	Triggers                   []Trigger       // of the changes that are now in the kernel; of very many not all
	Problems                   []model.Problem // all that stand of the objects of which something was learned, each once
	Well                       []string        // objects that had problems and have none now
	Drift                      []Drifted       // objects that were not as we left them
	Quarantined                []Quarantined   // new ones
	Rebuilt                    []Rebuilt       // families that were made anew

	Decided []Decided           // what the kernel now has, or may have if Err is set, of Services changed since it was last told
	Gone    []model.FrontendKey // keys that no longer belong to the Service that had them
	View    *model.NodeView
	Node    *model.Node
	// NodeUnknown: every source is in, and none of the cluster's Nodes has this node's name.
	NodeUnknown bool

	Pending, Held, Services, Slices, Endpoints int
}

// Trigger is when a change came about and when we heard of it.
type Trigger struct {
	Changed, Received time.Time
	Family            model.Family // of an EndpointSlice; 0: it may be both
}

// Decided is one Service's decision, for the followers of commits (conntrack,
// health check ports, DNS, explanations).
type Decided struct {
	Key    model.ServiceKey
	Result policy.Result // zero when the Service is gone or not proxied
}

// Quarantined names a Service that the kernel refused.
type Quarantined struct {
	Service model.ServiceKey // zero: the base objects
	Objects []string
	Err     error
}

// Rebuilt is one family that was made anew, as a whole, in one transaction.
type Rebuilt struct {
	Family model.Family
	Why    string
}

// Drifted is one object that somebody else changed.
type Drifted struct {
	Key     dataplane.Key
	Gone    bool // it had been deleted
	Foreign bool // it was not there before
}
