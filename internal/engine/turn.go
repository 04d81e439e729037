package engine

import (
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// Phase is a part of a sync.
type Phase uint8

// The phases of a sync, in order.
const (
	PhaseState  Phase = iota
	PhasePolicy       // decide and render, alternating per Service
	PhaseLoad
	PhaseApply
	NumPhases int = iota
)

// Turn is the report of one sync: the Commit of the design, also if the sync
// could not commit anything.
type Turn struct {
	Started, Done time.Time // Started is when the mailbox had been drained
	// Waits reports that no write was attempted, because sources are not synced yet or a
	// pause lasts. Only Problems and Well are filled.
	Waits      bool
	Phases     [NumPhases]time.Duration
	Err        error // nil: all pending changes are in the kernel, except those of quarantined Services
	Complete   bool  // every source is synced, or has delivered all that it can read
	Full       bool  // the kernel was read and compared (start, audit, conflict)
	Operations int   // kernel objects written
	Batches    int
	Reads      int // dumps and queries
	Conflicts  int

	events                     int        // of all kinds
	reported                   []reported // objects with a new report, possibly repeated
	ServiceEvents, SliceEvents int
	Triggers                   []Trigger       // of the changes that are now in the kernel; at most maxTriggers
	Problems                   []model.Problem // all current Problems of the objects with a new report, each once
	Well                       []string        // objects whose Problems are resolved
	Drift                      []Drifted       // objects that another program changed
	Quarantined                []Quarantined   // Services that were newly quarantined
	Rebuilt                    []Rebuilt       // families that were rebuilt

	Decided []Decided           // decisions that the kernel now has, or may have if Err is set, of Services changed since the last report
	Gone    []model.FrontendKey // keys that no longer belong to the Service that owned them
	View    *model.NodeView
	Node    *model.Node
	// NodeUnknown reports that every source is synced, and that none of the cluster's Nodes has this node's name.
	NodeUnknown bool

	Pending, Held, Services, Slices, Endpoints int
}

// Trigger holds the time of a change and the time at which the agent received it.
type Trigger struct {
	Changed, Received time.Time
	Family            model.Family // of an EndpointSlice; 0: possibly both
}

// Decided is the decision of one Service, for the observers of commits (conntrack,
// health check ports, DNS, explanations).
type Decided struct {
	Key    model.ServiceKey
	Result policy.Result // zero if the Service was deleted or is not proxied
}

// Quarantined is a Service whose objects the kernel rejected.
type Quarantined struct {
	Service model.ServiceKey // zero: the base objects
	Objects []string
	Err     error
}

// Rebuilt is one family whose rules were all rebuilt in one transaction.
type Rebuilt struct {
	Family model.Family
	Why    string
}

// Drifted is one object that another program changed.
type Drifted struct {
	Key     dataplane.Key
	Gone    bool // it was deleted
	Foreign bool // another program added it
}
