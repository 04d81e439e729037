package health

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// TrackerParams says what a Tracker needs to know.
type TrackerParams struct {
	Families []model.Family
	Timeout  time.Duration    // a change that waits longer makes us unhealthy: 2 x syncPeriod
	Now      func() time.Time // time.Now
}

// Tracker knows whether the kernel keeps up with what the sources say. It may
// be used from any goroutine.
type Tracker struct {
	p TrackerParams

	mu          sync.Mutex // the engine and the sources write, HTTP handlers read; never held over a call
	started     bool
	waiting     time.Time // since when the oldest change not in the kernel counts; zero = none
	newest      time.Time // when the newest change came in
	updated     time.Time // last commit
	auditFailed bool
	leaving     bool
}

// NewTracker makes a Tracker that is healthy and eligible: an agent that has not
// heard from the API server yet must not be killed for that.
func NewTracker(p TrackerParams) *Tracker { return &Tracker{p: p} }

// Started says that the sources are in sync and the engine may write: from now
// on a change that waits counts, also one that came before. Call it at the first
// turn whether that succeeds or not: a first sync that never does is unhealthy.
func (t *Tracker) Started(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.started && !t.waiting.IsZero() {
		t.waiting = now
	}
	t.started = true
}

// Queued says that a change came in. Sources call it through the mailbox and
// not the engine, because an engine that hangs would not.
func (t *Tracker) Queued(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting.IsZero() {
		t.waiting = now
	}
	t.newest = now
}

// Synced says that a turn was committed. drained is when it took its changes out
// of the mailbox (Turn.Started): what came in later still waits. Zero means that
// nothing does.
func (t *Tracker) Synced(now, drained time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.updated = now
	if drained.IsZero() || !t.newest.After(drained) {
		t.waiting = time.Time{}
	} else { // the oldest of those came at drained or later
		t.waiting = drained
	}
}

// AuditOK says that the kernel holds what it should.
func (t *Tracker) AuditOK() { t.setAudit(false) }

// AuditFailed says that it could not be found out, or not be repaired.
func (t *Tracker) AuditFailed() { t.setAudit(true) }

func (t *Tracker) setAudit(failed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.auditFailed = failed
}

// NodeEligible says whether our Node may get traffic from load balancers: false
// once it is deleted, being deleted, or tainted for it (KEP-3836).
func (t *Tracker) NodeEligible(eligible bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaving = !eligible
}

// Healthy tells whether the kernel keeps up.
func (t *Tracker) Healthy() bool { return t.snapshot().healthy }

type snapshot struct {
	healthy, eligible bool
	updated           time.Time
	now               time.Time
}

func (t *Tracker) snapshot() snapshot {
	now := t.p.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	late := t.started && !t.waiting.IsZero() && now.Sub(t.waiting) >= t.p.Timeout
	return snapshot{healthy: !late && !t.auditFailed, eligible: !t.leaving, updated: t.updated, now: now}
}
