package metrics

import (
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// Phase is a step of one sync.
type Phase uint8

// The phases, in the order in which they run. Load happens only at start, in
// an audit and after a conflict.
const (
	PhaseState Phase = iota
	PhasePolicy
	PhaseRender
	PhaseApply
	PhaseLoad
	NumPhases int = iota
)

// Result is how a sync ended.
type Result uint8

// The results.
const (
	OK         Result = iota // committed
	Conflict                 // somebody else wrote; nothing applied
	Refused                  // the kernel refused objects; they were put aside
	Failed                   // transient or fatal error; nothing applied
	numResults int    = iota
)

// Trigger is one change that a sync brought into the kernel.
type Trigger struct {
	Family   model.Family
	Changed  time.Time // annotation last-change-trigger-time; zero if unknown
	Received time.Time // when the source saw it; zero if unknown
}

// SyncReport is one turn of the engine, told in plain values. The slices are
// read during SyncDone only, so the engine may use them again.
type SyncReport struct {
	Families   []model.Family // families that the batch touched
	Full       bool           // compared with a fresh Load (start, audit, after a conflict)
	Result     Result
	Done       time.Time // when it ended
	Total      time.Duration
	Phases     [NumPhases]time.Duration // 0 = the phase did not run
	Operations int                      // kernel objects written
	Reads      int                      // kernel dumps and queries made
	Triggers   []Trigger                // changes now visible; ignored unless Result is OK
}
