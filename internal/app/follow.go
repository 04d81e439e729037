package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/health"
	"github.com/fairlead/fairlead/internal/kernel/sysctl"
	"github.com/fairlead/fairlead/internal/metrics"
	"github.com/fairlead/fairlead/internal/model"
)

// follower notifies the observers of the result of each sync of the engine. It runs on the
// engine's goroutine and never blocks, but before the first write (unanswered).
type follower struct {
	a         *agent
	ports     map[model.ServiceKey]health.ServicePort
	noLocal   map[model.Family]*noLocal
	problems  *problemLog
	noted     noteLog
	drift     driftLog
	reads     int // of the kernel, reported to metrics so far
	hadNode   bool
	synced    bool          // the whole desired state has been in the kernel once
	inKernel  chan struct{} // closed then
	nodePorts string        // the last line of tellNodePorts
	swept     bool          // conntrack was compared with everything once
}

func newFollower(a *agent) *follower {
	f := &follower{a: a, ports: map[model.ServiceKey]health.ServicePort{},
		noLocal: map[model.Family]*noLocal{}, problems: newProblemLog(a.log.Logger, time.Now), inKernel: make(chan struct{})}
	f.drift.log = a.log.Logger
	for _, fam := range a.caps.Families {
		f.noLocal[fam] = &noLocal{of: map[model.ServiceKey][2]bool{}}
	}
	return f
}

// turn is engine.Params.OnTurn.
func (f *follower) turn(t *engine.Turn) {
	if t.Waits {
		f.tellProblems(t.Problems, t.Well)
		return
	}
	f.metrics(t)
	f.tellHealth(t)
	f.tellProblems(t.Problems, t.Well)
	f.tellQuarantine(t.Quarantined)
	f.remember(t)
	f.tellDrift(t)
	f.tellRebuilt(t.Rebuilt)
	if t.Err == nil {
		f.committed(t)
	}
	f.line(t)
}

func (f *follower) metrics(t *engine.Turn) {
	m, reads := f.a.metrics, f.a.reads()
	r := metrics.SyncReport{
		Full: t.Full, Done: t.Done, Total: t.Done.Sub(t.Started), Operations: t.Operations,
		Reads: reads - f.reads, Conflicts: t.Conflicts, Result: result(t), Families: families(t),
	}
	f.reads = reads
	r.Phases[metrics.PhaseState] = t.Phases[engine.PhaseState]
	r.Phases[metrics.PhasePolicy] = t.Phases[engine.PhasePolicy]
	r.Phases[metrics.PhaseLoad] = t.Phases[engine.PhaseLoad]
	r.Phases[metrics.PhaseApply] = t.Phases[engine.PhaseApply]
	m.SyncDone(&r)
	m.ChangesSeen(t.ServiceEvents, t.SliceEvents)
	m.Sizes(t.Services, t.Endpoints)
	m.Pending(t.Pending)
	m.Quarantined(t.Held)
	if t.Err != nil {
		return
	}
	for _, tr := range t.Triggers {
		m.Programmed(tr.Family, tr.Changed, tr.Received, t.Done)
	}
}

// families returns the families of a sync's changes: one, if only EndpointSlices of one
// family changed; none means all.
func families(t *engine.Turn) []model.Family {
	if t.Full || t.ServiceEvents > 0 || t.View != nil || len(t.Triggers) == 0 || len(t.Triggers) < t.SliceEvents || t.Triggers[0].Family == 0 {
		return nil
	}
	for _, tr := range t.Triggers {
		if tr.Family != t.Triggers[0].Family {
			return nil
		}
	}
	return []model.Family{t.Triggers[0].Family}
}

func result(t *engine.Turn) metrics.Result {
	switch {
	case t.Err != nil:
		return metrics.Failed
	case len(t.Quarantined) > 0:
		return metrics.Refused
	}
	return metrics.OK
}

func (f *follower) tellHealth(t *engine.Turn) {
	h := f.a.health
	if t.Node != nil {
		f.hadNode = true
		h.NodeEligible(!t.Node.Leaving)
	} else if t.View != nil && f.hadNode { // the Node of this agent was deleted (KEP-3836)
		h.NodeEligible(false)
	}
	if !t.Complete { // before all sources have been read nothing is late, and nothing is in sync
		return
	}
	h.NodeUnknown(t.NodeUnknown)
	h.Started(t.Done)
	if t.Err != nil {
		if t.Full || errors.Is(t.Err, dataplane.ErrConflict) {
			h.AuditFailed(t.Done)
		}
		return
	}
	f.a.mail.Committed()
	h.Synced(t.Done)
	if !f.synced {
		f.synced = true
		close(f.inKernel)
		f.a.log.Info("in sync", "services", t.Services, "operations", t.Operations, "took", t.Done.Sub(t.Started).Round(time.Microsecond))
	}
}

// committed notifies the observers of a committed sync: of what is now in the kernel.
func (f *follower) committed(t *engine.Turn) {
	changed := false
	for i := range t.Decided {
		d := &t.Decided[i]
		changed = f.healthPort(d) || changed
		f.countNoLocal(d)
	}
	if changed {
		f.a.service.Set(f.ports)
	}
	f.tellNoted(t.Decided)
	if f.a.events != nil {
		f.a.events.decided(t.Decided, t.Complete, t.Done)
	}
	f.cleanFlows(t)
	if f.a.traffic != nil {
		f.a.traffic.turn(t)
	}
	f.answerLocally(t)
	f.mapAddresses(t)
	if t.View != nil {
		f.a.service.SetAddrs(t.View.HealthAddrs)
		f.tellNodePorts(*t.View)
		if t.View.LocalhostNodePorts && f.a.loopback == nil && f.a.rootless == nil {
			if c := sysctl.EnsureRouteLocalnet(sysctl.New()); c != nil {
				logSysctl(f.a.log.Logger, *c)
			}
		}
	}
}

func (f *follower) healthPort(d *engine.Decided) bool {
	old, had := f.ports[d.Key]
	if d.Result.Health == nil {
		delete(f.ports, d.Key)
		return had
	}
	now := health.ServicePort{Port: d.Result.Health.Port, LocalReady: d.Result.Health.Local}
	f.ports[d.Key] = now
	return now != old
}

func (f *follower) countNoLocal(d *engine.Decided) {
	for fam, n := range f.noLocal {
		here := slices.Contains(d.Result.NoLocalFamilies, fam)
		if n.set(d.Key, [2]bool{here && d.Result.NoLocalInternal, here && d.Result.NoLocalExternal}) {
			f.a.metrics.NoLocalEndpoints(false, fam, n.count[0])
			f.a.metrics.NoLocalEndpoints(true, fam, n.count[1])
		}
	}
}

// noLocal counts the Services whose Local policy finds no endpoint here, for
// internal and for external traffic. A change costs the same however many there are.
type noLocal struct {
	of    map[model.ServiceKey][2]bool
	count [2]int
}

// set reports whether anything changed.
func (n *noLocal) set(key model.ServiceKey, now [2]bool) bool {
	old := n.of[key]
	if old == now {
		return false
	}
	for i := range now {
		if old[i] {
			n.count[i]--
		}
		if now[i] {
			n.count[i]++
		}
	}
	if now == [2]bool{} {
		delete(n.of, key)
	} else {
		n.of[key] = now
	}
	return true
}

// tellDrift logs in one line the drift that another program caused and the agent repaired.
func (f *follower) tellDrift(t *engine.Turn) {
	if len(t.Drift) == 0 {
		return
	}
	kinds := map[string]int{}
	for _, d := range t.Drift {
		kinds[f.kind(d.Key)]++
	}
	for k, n := range kinds {
		f.a.metrics.DriftRepaired(k, n)
	}
	f.drift.say(t, f.name(t.Drift[0].Key))
}

// tellRebuilt logs which families were rebuilt as a whole, and why.
func (f *follower) tellRebuilt(list []engine.Rebuilt) {
	for _, r := range list {
		f.a.log.Warn("rebuilt all rules of a family in one transaction", "family", r.Family, "reason", r.Why)
		f.a.metrics.Rebuilt(rebuildReason(r.Why))
	}
}

// rebuildReason returns, for metrics, the class of the reason why a family was rebuilt.
func rebuildReason(why string) string {
	switch {
	case strings.HasSuffix(why, "is full"):
		return "full"
	case strings.HasSuffix(why, "layout"):
		return "layout"
	case strings.HasPrefix(why, "the "): // a declaration, hook or table that differs from the desired one
		return "declaration"
	}
	return why
}

func (f *follower) name(k dataplane.Key) string { return f.a.driver.KeyString(k) }

// kind returns an object's kind, derived from its name, in words that fit every data plane:
// names begin with "table", "chain", "set" or "rule", elements with their set.
func (f *follower) kind(k dataplane.Key) string {
	switch word, _, _ := strings.Cut(f.name(k), " "); word {
	case "table", "chain", "set", "rule":
		return word
	case "rules":
		return "rule"
	case k.String():
		return "other"
	}
	return "element"
}

func (f *follower) line(t *engine.Turn) {
	if t.Err != nil {
		f.a.log.Error("sync failed; trying again", "error", t.Err, "pending", t.Pending)
		return
	}
	f.a.log.Log(context.Background(), levelTurn, "synced", "services", t.ServiceEvents, "slices", t.SliceEvents, "operations", t.Operations,
		"batches", t.Batches, "took", t.Done.Sub(t.Started).Round(time.Microsecond))
}
