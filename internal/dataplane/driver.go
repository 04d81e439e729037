package dataplane

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// Driver is one data plane. All methods are called from the engine's goroutine,
// except that Watch runs in its own, and Compare and Survey in anybody's.
type Driver interface {
	// Name is the value of --proxy-mode.
	Name() string

	// Probe finds out what the kernel can do, by trying, and leaves no trace. Its
	// errors end the agent; those of the other methods do not.
	Probe(ctx context.Context) (Caps, error)

	// Base renders what exists whatever the Services are. Pure: it counts nothing
	// and remembers nothing that changes a later result.
	Base(view model.NodeView, emit func(Object))

	// Render renders one Frontend; same input, same Objects. Pure, as Base is: what
	// a driver must know of sizes it takes from a Batch or from a Load. Objects that
	// others refer to come first. Several Frontends may emit the same Object:
	// delta counts references. Of the view it may look only at what ViewChanged
	// compares, for the engine renders Frontends again only then.
	Render(f *model.Frontend, view *model.NodeView, emit func(Object))

	// ViewChanged reports whether Render may give other Objects under the new
	// view (Base is always rendered again). Pure.
	ViewChanged(old, now *model.NodeView) bool

	// Width is the slot size in bytes of a pool kind, 0 for plain kinds.
	Width(k Key) int

	// Linger is how long an unused object of this kind is kept before it is
	// deleted; 0 = deleted with the change that stops using it.
	Linger(k Key) time.Duration

	// Shared reports that objects of several Services may be this one, or lead to it. While nothing else leads
	// to it, it changes no packet's fate. Pure.
	Shared(k Key) bool

	// Load reports every object that the kernel holds in what is ours, unknown
	// ones included, and writes nothing. It returns ErrInterrupted if the kernel
	// changed meanwhile, and a RebuildError, after it has reported the other
	// families, if what a family holds cannot be repaired object by object. If it
	// fails otherwise, ctx's end included, the driver is as it was: the engine
	// gives up an audit when a change comes, applies that and audits later.
	Load(ctx context.Context, emit func(Key, string)) error

	// Survey is Load for somebody who only wants to know: it reports the same objects and fails as Load does, but remembers
	// nothing, and any goroutine may call it beside the other methods, which do not wait for it. What is written meanwhile it
	// may report or not; an Apply that comes meanwhile may also make it miss objects that the Apply is not about. In the place
	// of a value it may give the digest of one (Same).
	Survey(ctx context.Context, emit func(Key, string)) error

	// Compare reads these Objects by their keys, one by one and nothing of others, and
	// calls differs for each that is there otherwise than its Value says; found is ""
	// for one that is absent, else it means nothing to others. It is for a look at one
	// Service: of a pool of very many slots it reads the first ones. It writes nothing,
	// remembers nothing, and any goroutine may call it beside the other methods.
	Compare(ctx context.Context, want []Object, differs func(k Key, found string)) error

	// Apply does all of the batch or nothing of it, if the kernel allows.
	// On success Applied counts the kernel operations. On failure the error is
	// one of the classes below.
	Apply(ctx context.Context, b Batch) (Applied, error)

	// Watch calls changed once at its start if anything was written since our last
	// successful Apply or Load, then after each write of somebody else that may
	// concern us, until ctx ends. If it ends earlier the engine begins it again
	// after a while. It is only an alarm: Apply itself refuses to write over a
	// change it has not seen (ErrConflict).
	Watch(ctx context.Context, changed func()) error

	// Changed asks cheaply whether anybody wrote since our last successful Apply
	// or Load: somebody else, or we with an Apply that failed.
	Changed(ctx context.Context) (bool, error)

	// Cleanup removes every trace. Idempotent; needs no memory.
	Cleanup(ctx context.Context) error

	// KeyString names an object readably.
	KeyString(k Key) string
}

// Recaller is a Driver whose kernel gives single objects only at the price of very many.
type Recaller interface {
	// Recall says how far what the engine believes holds, at a price that does not grow with what exists. ok is false where
	// it is better to Compare: for there is little to read, or somebody has written. Any goroutine may call it.
	Recall(ctx context.Context) (r Recall, ok bool)
}

// Recall is what is known of objects without reading them one by one.
type Recall struct {
	Read  time.Time // when everything was last read; what we wrote since is known too
	Holds bool      // nobody else has written since
	How   string    // what says so, or why it cannot be said, as a clause
	Blind string    // what cannot be seen so, as a clause; "": nothing is hidden
}

// Summer is a Driver that sums up what is there at a lower price than it reports each object.
type Summer interface {
	// Sum returns how many objects Survey would report, and the sum of what each adds (ObjectSum, PoolSum). It fails as Survey
	// does, and any goroutine may call it.
	Sum(ctx context.Context) (Total, error)
}

// Total is a number of objects, and their sum. It counts from 0 at 2^64 again.
type Total struct {
	Objects int
	Sum     uint64
}

// Drainer is a Driver whose lingering objects may be done with before their time.
type Drainer interface {
	// Drained reports which of these nothing uses any more. It writes nothing. The engine's goroutine calls it.
	Drained(ctx context.Context, lingering []Key) ([]Key, error)
}

// Parter is a Driver some of whose objects are parts of another, as an endpoint that is an object of its own.
type Parter interface {
	// Part returns the object that k is a part of. is is false if it is none. Pure.
	Part(k Key) (whole Key, is bool)
}

// Caps is what Probe found, and how the driver likes to be used.
type Caps struct {
	Families []model.Family // usable ones, IPv4 first
	Notes    []string       // what the operator should know, one line each
	// ChunkOps is how many kernel operations one transaction of a build should
	// have at most; 0 leaves it to the engine.
	ChunkOps int
	// Pace asks the engine to pause after a write for so many times as long as the
	// write took, because a write costs what exists, not what changed; 0 asks for
	// no pause.
	Pace int
	// MaxBackends is how many backends of one Frontend are served; 0 is no limit.
	MaxBackends int
	// Inert reports that an object does nothing unless another leads to it, as a chain
	// without a hook; nil: none is. Pure.
	Inert func(Key) bool
	// DropsStrays: what is sent to an address of the cluster's Service ranges that no
	// Service has is dropped.
	DropsStrays bool
	// OwnsAddresses: a ClusterIP is this node's own address, so a port of it that no Service has is refused.
	OwnsAddresses bool
	// OneList: a Frontend has one list of backends in the kernel, whoever its client is, so
	// decisions pass through policy's OneList. Render may rely on it.
	OneList bool
	// Unsupported says in a few words why the driver does not serve a Frontend, "" if it
	// does; nil: it serves every one. Pure. It is reported as a problem of the Service,
	// whose other Frontends are served.
	Unsupported func(*model.Frontend) string
}

// Has reports whether a family is usable.
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
