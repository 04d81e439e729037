package engine

import (
	"maps"
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/delta"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// fold applies every queued event to state, and marks the Services that must be decided
// again as dirty. They are decided when the result may be written: until then, ten
// changes of a Service cost as little as one.
func (e *Engine) fold() {
	events := e.p.Mailbox.Drain()
	now := e.p.Now()
	e.turn.Started = now // after draining: later events are not in this sync
	if len(events) == 0 {
		return
	}
	settled := e.scope(now) >= listed
	changes := e.st.Apply(events)
	e.note(events)
	for _, s := range changes.Synced {
		delete(e.waiting, s)
	}
	if changes.View || !e.tr.Has(owner{}) {
		e.refreshView(changes.Dirty)
	}
	if changes.View || len(changes.Synced) > 0 {
		e.report(thisNode{}, e.nodeProblems())
	}
	e.updateServices(changes.Dirty)
	if settled {
		e.arrive(events)
		e.depart(changes.Was, now)
		e.hurry = e.hurry || e.p.Pace > 0 && e.takesAway(changes.Was)
	}
	if len(e.dirty) == 0 {
		e.dirty = changes.Dirty
	} else {
		maps.Copy(e.dirty, changes.Dirty)
	}
	e.turn.Phases[PhaseState] += e.p.Now().Sub(now)
}

// noteChanged records a Service of which the observers now know a stale state.
func (e *Engine) noteChanged(k model.ServiceKey) {
	if _, known := e.untold[k]; !known {
		e.untold[k] = e.services.Served(k)
	}
}

// maxTriggers bounds the Triggers that wait for a commit: they are for metrics only.
const maxTriggers = 10_000

// note records the counts, Triggers and Problems of the events for the report of the sync.
func (e *Engine) note(events []model.Event) {
	t := &e.turn
	t.events += len(events)
	for i := range events {
		ev := &events[i]
		e.noteProblems(ev)
		if ev.Listed != "" {
			e.noteListed(ev.Listed)
		}
		switch {
		case ev.Service != nil:
			t.ServiceEvents++
		case ev.Slice != nil:
			t.SliceEvents++
		default:
			continue
		}
		if len(t.Triggers) < maxTriggers {
			t.Triggers = append(t.Triggers, Trigger{Changed: ev.Trigger, Received: ev.Received, Family: familyOf(ev)})
		}
	}
}

// noteListed records that a source has delivered all that it can read.
func (e *Engine) noteListed(source string) {
	if _, waited := e.waiting[source]; waited {
		e.waiting[source] = true
	}
}

// familyOf returns the one family that a change affects, 0 if that is unknown or both.
func familyOf(ev *model.Event) model.Family {
	if ev.Slice == nil || ev.Slice.Value == nil {
		return 0
	}
	return ev.Slice.Value.Family
}

// updateServices passes the changed Services to policy, and marks the Services that
// gained or lost a key by that as dirty.
func (e *Engine) updateServices(dirty map[model.ServiceKey]struct{}) {
	changed := slices.AppendSeq(make([]model.ServiceKey, 0, len(dirty)), maps.Keys(dirty))
	if len(e.untold) == 0 && len(changed) > fewKeys {
		e.untold = make(map[model.ServiceKey]*model.Service, len(changed))
	}
	for _, k := range changed {
		e.noteChanged(k)
		svc, _ := e.st.Service(k)
		affected, _ := e.services.Update(k, svc)
		for _, other := range affected {
			e.noteChanged(other)
			dirty[other] = struct{}{}
		}
	}
}

// refreshView decides the NodeView again and marks the Services that depend on it as dirty.
func (e *Engine) refreshView(dirty map[model.ServiceKey]struct{}) {
	in := e.p.View
	in.Cluster = in.Cluster || e.st.Cluster()
	in.Node, in.Host, in.CIDRs, in.Exclusions = e.st.KnownNode(), e.st.Host(), e.st.ServiceCIDRs(), e.st.Exclusions()
	old := e.view
	e.view = policy.View(in)
	e.setBase()
	e.toldView = false
	for _, k := range e.services.SetNode(policy.Self{Name: e.p.NodeName, Zone: e.st.Zone(), Addrs: e.view.NodeAddrs,
		ServiceCIDRs: e.view.ServiceCIDRs, NoExternalIPs: in.NoExternalIPs, NoExternalIPsOfNode: in.NoExternalIPsOfNode, Relayed: in.Relayed, NoSource: in.NoSource}) {
		dirty[k] = struct{}{}
	}
	if e.p.Driver.ViewChanged(&old, &e.view) {
		for k := range e.services.Keys() {
			dirty[k] = struct{}{}
		}
	}
}

// setBase updates the desired base objects, whose owner is the zero value.
func (e *Engine) setBase() {
	var objs []delta.Object[dataplane.Key]
	e.p.Driver.Base(e.view, func(o dataplane.Object) {
		objs = append(objs, delta.Object[dataplane.Key]{Key: o.Key, Value: o.Value})
	})
	e.tr.Set(owner{}, objs, e.turn.Started)
}

// decideDirty decides the dirty Services.
func (e *Engine) decideDirty(s scope) {
	if len(e.dirty) == 0 {
		return
	}
	keys := slices.AppendSeq(make([]model.ServiceKey, 0, len(e.dirty)), maps.Keys(e.dirty))
	slices.SortFunc(keys, model.ServiceKey.Compare) // output must not depend on map order
	e.dirty = emptied(e.dirty)
	for _, k := range keys {
		delete(e.held, k) // its desired state is a new one now
	}
	e.decide(keys, s)
}

// fewKeys is the largest number of keys for which a map is cleared and reused. A larger map
// is replaced, because it would keep its buckets, and clearing walks through them.
const fewKeys = 64

// emptied returns an empty map: m itself, cleared, or a new one if m is large.
func emptied[K comparable, V any](m map[K]V) map[K]V {
	if len(m) > fewKeys {
		return map[K]V{}
	}
	clear(m)
	return m
}
