package health

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// TrackerParams configures a Tracker.
type TrackerParams struct {
	Families []model.Family
	Timeout  time.Duration // a change that is pending longer makes the agent unhealthy: 2 x syncPeriod
	// Waiting returns when the oldest change came in that is not in the kernel yet;
	// zero if there is none (Mailbox.Waiting).
	Waiting func() time.Time
	Now     func() time.Time // time.Now
}

// Tracker tracks whether the kernel is in sync with the sources. It may be used from
// any goroutine.
type Tracker struct {
	p TrackerParams

	mu       sync.Mutex // the engine writes, HTTP handlers read; never held over a call
	started  time.Time  // when all sources were in sync and the engine could write for the first time; zero = not yet
	updated  time.Time  // last commit; zero = none
	troubled time.Time  // since when the kernel has not been seen in the desired state; zero = it is
	leaving  bool
	unknown  bool // see NodeUnknown
}

// NewTracker returns a Tracker that is healthy and eligible, and not ready: an agent
// that has not received anything from the API server yet must not be restarted for
// that.
func NewTracker(p TrackerParams) *Tracker { return &Tracker{p: p} }

// Started records that every source is in sync and the engine may write: from now on a
// pending change counts, also an earlier one. The engine calls it at the first such
// sync whether that succeeds or not: a first sync that never succeeds is unhealthy.
func (t *Tracker) Started(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.started.IsZero() {
		t.started = now
	}
}

// Synced records that the kernel is in the desired state, as of now.
func (t *Tracker) Synced(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.updated, t.troubled = now, time.Time{}
}

// AuditFailed records that the actual state of the kernel could not be read, or could
// not be repaired. It counts as a change that is pending since the first such failure:
// one conflict is no reason to restart anything.
func (t *Tracker) AuditFailed(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.troubled.IsZero() {
		t.troubled = now
	}
}

// NodeEligible sets whether this Node may receive traffic from load balancers: false
// once it is deleted, being deleted, or tainted for it (KEP-3836).
func (t *Tracker) NodeEligible(eligible bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaving = !eligible
}

// NodeUnknown sets whether the cluster has no Node of this node's name: then neither
// its zone nor its addresses are known, and it is not ready.
func (t *Tracker) NodeUnknown(unknown bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unknown = unknown
}

// Healthy reports whether the kernel is in sync with the sources, within Timeout.
func (t *Tracker) Healthy() bool { return t.snapshot().healthy }

// Eligible reports whether this Node may receive traffic from load balancers.
func (t *Tracker) Eligible() bool { return t.snapshot().eligible }

// Ready reports whether this node serves Services: everything that should exist has been
// in the kernel once, the kernel keeps up, and the cluster's Node of this machine is known.
func (t *Tracker) Ready() bool { return t.snapshot().ready }

type snapshot struct {
	healthy, eligible, ready, unknown bool
	updated                           time.Time
	now                               time.Time
}

func (t *Tracker) snapshot() snapshot {
	waiting, now := t.p.Waiting(), t.p.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	healthy := !t.late(waiting, now) && !t.late(t.troubled, now)
	return snapshot{healthy: healthy, eligible: !t.leaving, ready: healthy && !t.updated.IsZero() && !t.unknown, unknown: t.unknown, updated: t.updated, now: now}
}

// late reports whether what began at since has gone on for too long. The time before
// everything was known does not count.
func (t *Tracker) late(since, now time.Time) bool {
	if since.IsZero() || t.started.IsZero() {
		return false
	}
	if since.Before(t.started) {
		since = t.started
	}
	return now.Sub(since) >= t.p.Timeout
}
