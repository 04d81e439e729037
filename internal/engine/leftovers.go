package engine

import (
	"context"
	"net/netip"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// Objects that an earlier run left in the kernel may belong to a Service that this run cannot read yet.
// While a source is Listed and not Synced, two kinds of them stay: keys that no Service of this run has
// wanted (delta.Tracker.KeepUnseen), and Frontends that would cease to forward although this run has never
// made them forward. Everything else follows the sources as usual.

// left is the state of such leftovers: unknown, some or none. Only none lets a Listed source count as
// Synced.
type left uint8

const (
	leftUnknown left = iota
	leftSome
	leftNone
)

// readLeftovers reads the kernel before the first decision in scope listed, because whether a Frontend that
// does not forward may be written depends on the actual state.
func (e *Engine) readLeftovers(ctx context.Context, s scope) error {
	if s != listed || e.left != leftUnknown {
		return nil
	}
	return e.reconcile(ctx, nothing)
}

// reviewLeftovers starts or ends the retention of leftovers, and returns the resulting scope.
func (e *Engine) reviewLeftovers(s scope) scope {
	switch {
	case s == listed && e.left == leftUnknown:
		if e.left = leftSome; e.tr.AnyUnseen() {
			e.tr.KeepUnseen(e.turn.Started)
			return listed
		}
	case s != everything || e.left != leftSome:
		return s
	default:
		e.tr.EndKeep(e.turn.Started)
	}
	e.left = leftNone
	for k := range e.withheld {
		e.noteChanged(k)
		e.dirty[k] = struct{}{}
	}
	e.withheld = emptied(e.withheld)
	e.decideDirty(everything)
	return everything
}

// withhold removes from a decision the Frontends that do not forward, but for which an earlier run left
// objects that may still forward.
func (e *Engine) withhold(k model.ServiceKey, res *policy.Result, s scope) {
	if s != listed {
		return
	}
	kept := make([]model.Frontend, 0, len(res.Frontends))
	for i := range res.Frontends {
		if f := &res.Frontends[i]; f.Verdict == model.Forward || e.isThere(f) || !e.leftover(*f) {
			kept = append(kept, *f)
		}
	}
	if len(kept) == len(res.Frontends) {
		delete(e.withheld, k)
		return
	}
	e.withheld[k] = struct{}{}
	res.Frontends = kept
}

// isThere reports whether the actual state of a Frontend is its decided state.
func (e *Engine) isThere(f *model.Frontend) bool {
	is := true
	e.render(f, func(o dataplane.Object) { is = is && e.tr.Have(o.Key) == o.Value })
	return is
}

// leftover reports whether the kernel holds, from an earlier run, an object that a Frontend would have
// if it forwarded.
func (e *Engine) leftover(f model.Frontend) (any bool) {
	some := netip.IPv4Unspecified()
	if f.Key.Family == model.IPv6 {
		some = netip.IPv6Unspecified()
	}
	f.Verdict, f.Backends = model.Forward, []model.Backend{{Addr: some, Port: 1, Weight: 1}}
	e.render(&f, func(o dataplane.Object) {
		any = any || e.tr.Unseen(o.Key) && !e.p.Driver.Shared(o.Key)
	})
	return any
}
