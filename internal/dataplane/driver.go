package dataplane

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// Driver is one data plane. All methods are called from the engine's goroutine,
// except that Watch runs in its own.
type Driver interface {
	// Name is the value of --proxy-mode.
	Name() string

	// Probe finds out what the kernel can do, by trying, and leaves no trace.
	Probe(ctx context.Context) (Caps, error)

	// Base renders what exists whatever the Services are. Pure.
	Base(view model.NodeView, emit func(Object))

	// Render renders one Frontend; same input, same Objects. Pure. Objects that
	// others refer to come first. Several Frontends may emit the same Object:
	// delta counts references. Of the view it may look only at what ViewChanged
	// compares, for the engine renders Frontends again only then.
	Render(f *model.Frontend, view *model.NodeView, emit func(Object))

	// ViewChanged tells whether Render may give other Objects under the new
	// view (Base is always rendered again). Pure.
	ViewChanged(old, now *model.NodeView) bool

	// Width is the slot size in bytes of a pool kind, 0 for plain kinds.
	Width(k Key) int

	// Linger is how long an unused object of this kind is kept before it is
	// deleted; 0 = deleted with the change that stops using it.
	Linger(k Key) time.Duration

	// Load reports every object that the kernel holds in what is ours, unknown
	// ones included. It returns ErrInterrupted if the kernel changed meanwhile.
	// If it fails, ctx's end included, the driver is as it was: the engine gives
	// up an audit when a change comes, applies that and audits later.
	Load(ctx context.Context, emit func(Key, string)) error

	// Apply does all of the batch or nothing of it, if the kernel allows.
	// On success Applied counts the kernel operations. On failure the error is
	// one of the classes below.
	Apply(ctx context.Context, b Batch) (Applied, error)

	// Watch calls changed whenever somebody may have changed what is ours,
	// until ctx ends; first if that was before it began, but after our last
	// successful Apply or Load. If it ends earlier the engine begins it again
	// after a while. It is only an alarm: Apply itself refuses to write over a
	// change it has not seen (ErrConflict).
	Watch(ctx context.Context, changed func()) error

	// Changed asks cheaply whether anybody wrote since our last successful Apply
	// or Load: somebody else, or we with an Apply that failed.
	Changed(ctx context.Context) (bool, error)

	// Cleanup removes every trace. Idempotent; needs no memory.
	Cleanup(ctx context.Context) error
}

// Caps is what Probe found.
type Caps struct {
	Families []model.Family // usable ones, IPv4 first
	Notes    []string       // what the operator should know, one line each
}

// Has tells whether a family is usable.
func (c Caps) Has(f model.Family) bool {
	for _, g := range c.Families {
		if g == f {
			return true
		}
	}
	return false
}

// Applied counts what an Apply wrote.
type Applied struct {
	Operations int // kernel objects created, changed or deleted (pool slots count one each)
}

// KeyStringer is implemented by drivers that can name an object readably.
type KeyStringer interface{ KeyString(Key) string }
