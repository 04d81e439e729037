package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/delta"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
	"github.com/fairlead/fairlead/internal/state"
)

// fold takes every waiting event through state, policy and render into wants.
func (e *Engine) fold() {
	events := e.p.Mailbox.Drain()
	now := e.p.Now()
	e.turn.Started = now // after draining: what comes in later is not in this turn
	if len(events) == 0 {
		return
	}
	t0 := e.p.Now()
	changes := e.st.Apply(events)
	e.note(events)
	for _, s := range changes.Synced {
		delete(e.waiting, s)
	}
	if changes.View || !e.tr.Has(owner{}) {
		e.refreshView(changes.Dirty, now)
	}
	e.settleClaims(changes.Dirty)
	dirty := make([]model.ServiceKey, 0, len(changes.Dirty))
	for k := range changes.Dirty {
		dirty = append(dirty, k)
	}
	slices.SortFunc(dirty, model.ServiceKey.Compare) // output must not depend on map order
	e.turn.Phases[PhaseState] += e.p.Now().Sub(t0)
	e.decide(dirty, now)
}

// note keeps what the turn must tell about the events.
func (e *Engine) note(events []model.Event) {
	e.turn.Triggers = slices.Grow(e.turn.Triggers, len(events))
	for i := range events {
		ev := &events[i]
		e.noteProblems(ev)
		if _, waited := e.waiting[ev.Listed]; waited {
			e.waiting[ev.Listed] = true
		}
		switch {
		case ev.Service != nil:
			e.turn.ServiceEvents++
		case ev.Slice != nil:
			e.turn.SliceEvents++
		default:
			continue
		}
		e.turn.Triggers = append(e.turn.Triggers, Trigger{Changed: ev.Trigger, Received: ev.Received})
		if !ev.Received.IsZero() && (e.turn.Waiting.IsZero() || ev.Received.Before(e.turn.Waiting)) {
			e.turn.Waiting = ev.Received
		}
	}
}

// noteProblems keeps new problems, and the names of objects that have none any more.
func (e *Engine) noteProblems(ev *model.Event) {
	if len(ev.Problems) == 0 && len(e.troubled) == 0 {
		return
	}
	key := any(ev.Origin)
	switch {
	case ev.Service != nil:
		key = ev.Service.Key
	case ev.Slice != nil:
		key = ev.Slice.Key
	}
	for _, object := range e.troubled[key] {
		if !slices.ContainsFunc(ev.Problems, func(p model.Problem) bool { return p.Object == object }) {
			e.turn.Well = append(e.turn.Well, object)
		}
	}
	delete(e.troubled, key)
	for _, p := range ev.Problems {
		e.troubled[key] = append(e.troubled[key], p.Object)
	}
	e.turn.Problems = append(e.turn.Problems, ev.Problems...)
}

// settleClaims takes changed Services to policy, and makes dirty the Services
// that gained or lost a key by that.
func (e *Engine) settleClaims(dirty map[model.ServiceKey]struct{}) {
	for k := range maps.Clone(dirty) {
		svc, _ := e.st.Service(k)
		affected, gone := e.services.Update(k, svc)
		for _, other := range affected {
			dirty[other] = struct{}{}
		}
		e.turn.Gone = append(e.turn.Gone, gone...)
	}
}

// refreshView decides the NodeView again and makes dirty what depends on it.
func (e *Engine) refreshView(dirty map[model.ServiceKey]struct{}, now time.Time) {
	in := e.p.View
	in.Node, in.Host, in.CIDRs = e.st.Node(), e.st.Host(), e.st.ServiceCIDRs()
	old := e.view
	e.view = policy.View(in)
	e.setBase(now)
	e.turn.View, e.turn.Node = &e.view, e.st.Node()
	for _, k := range e.services.SetNode(policy.Self{Name: e.p.NodeName, Zone: e.st.Zone(), Addrs: e.view.NodeAddrs,
		ServiceCIDRs: e.view.ServiceCIDRs, NoExternalIPs: in.NoExternalIPs}) {
		dirty[k] = struct{}{}
	}
	if e.p.Driver.ViewChanged(&old, &e.view) {
		for k := range e.services.Keys() {
			dirty[k] = struct{}{}
		}
	}
}

func (e *Engine) setBase(now time.Time) {
	var objs []delta.Object[dataplane.Key]
	e.p.Driver.Base(e.view, func(o dataplane.Object) {
		objs = append(objs, delta.Object[dataplane.Key]{Key: o.Key, Value: o.Value})
	})
	e.tr.Set(owner{}, objs, now)
}

// decide runs policy and render for the given Services.
func (e *Engine) decide(keys []model.ServiceKey, now time.Time) {
	t0 := e.p.Now()
	objs := make([]delta.Object[dataplane.Key], 0, 16)
	emit := func(o dataplane.Object) {
		objs = append(objs, delta.Object[dataplane.Key]{Key: o.Key, Value: o.Value})
	}
	e.turn.Decided = slices.Grow(e.turn.Decided, len(keys))
	for _, key := range keys {
		_, sl := e.st.Service(key)
		res := e.services.Decide(key, sl)
		e.turn.Problems = append(e.turn.Problems, res.Problems...)
		objs = objs[:0]
		for i := range res.Frontends {
			if f := &res.Frontends[i]; slices.Contains(e.p.Families, f.Key.Family) {
				e.p.Driver.Render(f, &e.view, emit)
			}
		}
		delete(e.held, key)
		e.tr.Set(key, objs, now)
		e.turn.Decided = append(e.turn.Decided, Decided{Key: key, Result: res})
	}
	e.turn.Phases[PhasePolicy] += e.p.Now().Sub(t0)
}

// View lets an inspector read the engine's state between turns.
type View struct{ e *Engine }

// State gives the inputs.
func (v View) State() *state.State { return v.e.st }

// Decide gives policy's answer for one Service, as the engine would get it now.
func (v View) Decide(key model.ServiceKey) policy.Result {
	_, sl := v.e.st.Service(key)
	return v.e.services.Decide(key, sl)
}

// Node gives the view.
func (v View) Node() model.NodeView { return v.e.view }

// String sums up, for logs.
func (v View) String() string {
	return fmt.Sprintf("%d objects known, %d pending", v.e.tr.Len(), v.e.tr.PendingCount())
}
