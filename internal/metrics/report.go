package metrics

import (
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// Phase is a step of one sync.
type Phase uint8

// The phases. Load runs only at start, in an audit and after a conflict.
const (
	PhaseState  Phase = iota
	PhasePolicy       // decide and render, which alternate Service by Service
	PhaseApply
	PhaseLoad
	NumPhases int = iota
)

// Result is how a sync ended.
type Result uint8

// The results.
const (
	OK      Result = iota // everything that was pending is in the kernel
	Refused               // committed, but the kernel refused objects: they were quarantined
	Failed                // not committed; it will be retried
)

// SyncReport is one sync of the engine, reported in plain values.
type SyncReport struct {
	Families   []model.Family // that the turn was about; empty = all
	Full       bool           // compared with a fresh Load (start, audit, after a conflict)
	Result     Result
	Done       time.Time // when it ended
	Total      time.Duration
	Phases     [NumPhases]time.Duration // 0 = the phase did not run
	Operations int                      // kernel objects written
	Reads      int                      // kernel dumps and queries made
	Conflicts  int                      // batches refused because another program had written
}
