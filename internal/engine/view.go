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

// View is read access to the engine's state between two syncs. Its results are valid
// until the function that received the View returns.
type View struct{ e *Engine }

// State returns the inputs.
func (v View) State() *state.State { return v.e.st }

// Decide returns policy's decision for one Service from the engine's current state. The result omits Frontends that are
// withheld.
func (v View) Decide(k model.ServiceKey) policy.Result {
	res := v.e.result(k)
	if _, some := v.e.withheld[k]; some {
		v.e.withhold(k, &res, v.e.scope(v.e.p.Now()))
	}
	return res
}

// Withheld reports whether a Frontend of a Service is withheld: it would cease to forward, possibly only because its
// endpoints cannot be read yet, so the kernel keeps the state that an earlier run left.
func (v View) Withheld(k model.ServiceKey) bool { _, is := v.e.withheld[k]; return is }

// Unserved returns why the data plane does not serve a Frontend; "" if it does.
func (v View) Unserved(f *model.Frontend) string {
	if v.e.p.Unsupported == nil {
		return ""
	}
	return v.e.p.Unsupported(f)
}

// Node returns the NodeView.
func (v View) Node() model.NodeView { return v.e.view }

// NodeName returns the name of this node in EndpointSlices.
func (v View) NodeName() string { return v.e.p.NodeName }

// Holder returns the Service that owns a key, and the Services that claim it without success.
func (v View) Holder(k model.FrontendKey) (holder model.ServiceKey, losers []model.ServiceKey, held bool) {
	return v.e.services.Holder(k)
}

// ClusterIPOf returns the Service that has Frontends and the address as its ClusterIP. It visits all Services.
func (v View) ClusterIPOf(a netip.Addr) (owner model.ServiceKey, is bool) {
	return v.e.services.ClusterIPOf(a)
}

// Held is a quarantined Service: the kernel rejected its objects, and it keeps its last good state.
type Held struct {
	Service model.ServiceKey
	Objects []string // that were rejected
	Err     error
	Since   time.Time
	RetryAt time.Time
}

// Held returns the quarantined Services, by name.
func (v View) Held() []Held {
	out := make([]Held, 0, len(v.e.held))
	for _, q := range v.e.held {
		out = append(out, q.last)
	}
	slices.SortFunc(out, func(a, b Held) int { return a.Service.Compare(b.Service) })
	return out
}

// HeldOf returns the quarantine of a Service, and reports whether it is quarantined.
func (v View) HeldOf(k model.ServiceKey) (Held, bool) {
	q, held := v.e.held[k]
	if !held {
		return Held{}, false
	}
	return q.last, true
}

// Pending returns an upper bound of the number of pending objects, whose actual state differs from the desired one.
func (v View) Pending() int { return v.e.tr.PendingCount() }

// Waiting returns the sources that are not synced yet. A source that has delivered all that it can read is left out if
// the kernel holds no object that could belong to the rest.
func (v View) Waiting() []string {
	if v.e.scope(v.e.p.Now()) == everything {
		return nil
	}
	return slices.Sorted(maps.Keys(v.e.waiting))
}

// Undecided reports whether a Service is dirty: a change has come that Objects does not show yet, although
// Decide does, because the engine may pause after a write.
func (v View) Undecided(k model.ServiceKey) bool {
	_, dirty := v.e.dirty[k]
	return dirty
}

// Objects returns the desired objects of a Service in the data plane; for the zero key, the
// base objects that do not depend on Services. written holds those that have been committed
// with their desired value, pending the others.
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

// String returns a summary for logs.
func (v View) String() string {
	return fmt.Sprintf("%d objects known, %d pending", v.e.tr.Len(), v.e.tr.PendingCount())
}
