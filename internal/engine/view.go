package engine

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
	"github.com/fairlead/fairlead/internal/state"
)

// View lets an inspector read the engine's state between turns. What it gives is
// valid until the function that got it returns.
type View struct{ e *Engine }

// State returns the inputs.
func (v View) State() *state.State { return v.e.st }

// Decide returns policy's answer for one Service, as the engine would get it now. Of a Service of which a Frontend is
// withheld it has the others only.
func (v View) Decide(k model.ServiceKey) policy.Result {
	res := v.e.result(k)
	if _, some := v.e.withheld[k]; some {
		v.e.withhold(k, &res, v.e.scope(v.e.p.Now()))
	}
	return res
}

// Withheld reports whether a Frontend of a Service is withheld: it would cease to forward, perhaps only because its
// endpoints are in what cannot be read, so the kernel has it as an earlier run left it.
func (v View) Withheld(k model.ServiceKey) bool { _, is := v.e.withheld[k]; return is }

// Unserved says why the data plane does not serve a Frontend; "" if it does.
func (v View) Unserved(f *model.Frontend) string {
	if v.e.p.Unsupported == nil {
		return ""
	}
	return v.e.p.Unsupported(f)
}

// Node returns the view.
func (v View) Node() model.NodeView { return v.e.view }

// NodeName is what EndpointSlices call this node.
func (v View) NodeName() string { return v.e.p.NodeName }

// Holder returns the Service that holds a key, and those that ask for it in vain.
func (v View) Holder(k model.FrontendKey) (holder model.ServiceKey, losers []model.ServiceKey, held bool) {
	return v.e.services.Holder(k)
}

// ClusterIPOf returns the Service that has Frontends and the address as its ClusterIP. It looks at all Services.
func (v View) ClusterIPOf(a netip.Addr) (owner model.ServiceKey, is bool) {
	return v.e.services.ClusterIPOf(a)
}

// Held is a Service that the kernel refused, and that keeps its last good state.
type Held struct {
	Service model.ServiceKey
	Objects []string // that were refused
	Err     error
	Since   time.Time
	RetryAt time.Time
}

// Held returns the Services that the kernel refused, by name.
func (v View) Held() []Held {
	out := make([]Held, 0, len(v.e.held))
	for _, q := range v.e.held {
		out = append(out, q.last)
	}
	slices.SortFunc(out, func(a, b Held) int { return a.Service.Compare(b.Service) })
	return out
}

// HeldOf reports whether and why the kernel refused a Service.
func (v View) HeldOf(k model.ServiceKey) (Held, bool) {
	q, held := v.e.held[k]
	if !held {
		return Held{}, false
	}
	return q.last, true
}

// Pending is how many objects in the kernel differ from what they should be.
func (v View) Pending() int { return v.e.tr.PendingCount() }

// Waiting returns the sources that have not delivered everything yet. A source that has delivered all that it can
// read is not among them if the kernel holds nothing that could belong to the rest.
func (v View) Waiting() []string {
	if v.e.scope(v.e.p.Now()) == everything {
		return nil
	}
	return slices.Sorted(maps.Keys(v.e.waiting))
}

// Undecided reports whether a change of a Service has come that Objects does not show yet: after a write
// the engine may pause, and Decide is ahead of it.
func (v View) Undecided(k model.ServiceKey) bool {
	_, dirty := v.e.dirty[k]
	return dirty
}

// Objects returns what a Service makes in the data plane, or the zero key what is there
// whatever the Services are: each as it was decided, in written those that have been
// committed so, in pending those that wait.
func (v View) Objects(k model.ServiceKey) (written, pending []dataplane.Object) {
	for _, d := range v.e.tr.Owned(k) {
		o := dataplane.Object{Key: d.Key, Value: d.Want}
		if d.Have == d.Want {
			written = append(written, o)
		} else {
			pending = append(pending, o)
		}
	}
	return written, pending
}

// String sums up, for logs.
func (v View) String() string {
	return fmt.Sprintf("%d objects known, %d pending", v.e.tr.Len(), v.e.tr.PendingCount())
}
