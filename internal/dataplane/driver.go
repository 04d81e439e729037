package dataplane

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// Driver is one data plane. The engine's goroutine calls all methods, except
// Watch, which runs in a goroutine of its own, and Compare and Survey, which any
// goroutine may call.
//
// Example of its use by the engine: Probe, then for each Service Render(f) = {eps
// 10.96.0.10:80 "AB", services 10.96.0.10:80 "lb-a-2", ...}; Load emits the objects that
// the kernel holds, say eps with "A" and no services; package delta computes the
// difference, and Apply gets Batch{Ops: [{eps, "A", "AB"}, {services, "", "lb-a-2"}]}.
// From then on the engine assumes that the kernel holds what it has applied, and calls
// Load again only after an error, an alarm of Watch, or for an audit.
type Driver interface {
	// Name returns the value of --proxy-mode.
	Name() string

	// Probe determines by trial what the kernel supports, and leaves no trace. An
	// error of Probe ends the agent; an error of another method does not (but see
	// ErrNotOurs).
	Probe(ctx context.Context) (Caps, error)

	// Base renders the objects that do not depend on the Services. Pure: it keeps
	// no state that changes a later result.
	Base(view model.NodeView, emit func(Object))

	// Render renders one Frontend; the same input returns the same Objects. Pure,
	// as Base is: a driver takes sizes from a Batch or from a Load. Objects that
	// other objects refer to are emitted first. Several Frontends may emit the same
	// Object: delta counts references. Render may use only those parts of the view
	// that ViewChanged compares, because the engine renders Frontends again only
	// when ViewChanged returns true.
	Render(f *model.Frontend, view *model.NodeView, emit func(Object))

	// ViewChanged reports whether Render may return other Objects for the new
	// view (Base is always rendered again). Pure.
	ViewChanged(old, now *model.NodeView) bool

	// Width returns the slot size in bytes of a pool kind, 0 for plain kinds. Pure. Any
	// goroutine may call it.
	Width(k Key) int

	// Linger returns how long an unused object of this kind is kept before it is
	// deleted. 0: it is deleted in the change that stops using it. Pure.
	Linger(k Key) time.Duration

	// Shared reports whether several Services may own this object, or own objects that refer to it. While no other
	// object refers to it, it does not affect packets. Pure.
	Shared(k Key) bool

	// Load reports the actual state: every object in the part of the kernel state
	// that the driver owns, including unknown objects. It writes nothing. It
	// returns ErrInterrupted if the kernel state changed during the read. It returns
	// a RebuildError, after it has reported the other families, if the objects of a
	// family cannot be repaired one by one. If it fails otherwise, including
	// cancellation of ctx, the driver's own state is unchanged: a change preempts an
	// audit, and the engine applies the change and audits later.
	Load(ctx context.Context, emit func(Key, string)) error

	// Survey is a read-only Load: it reports the same objects and fails as Load does, but does not update the driver's state.
	// Any goroutine may call it concurrently with the other methods, which do not wait for it. It may or may not report
	// concurrent writes. A concurrent Apply may also make it miss objects that are not part of the batch. Instead of a value it
	// may report its digest (Same).
	Survey(ctx context.Context, emit func(Key, string)) error

	// Compare looks up these Objects by key, one by one, and reads no other objects. It
	// calls differs for each Object whose actual value differs from Value; found is ""
	// if it is absent, else an opaque value that only the driver can interpret. It is
	// for the inspection of one Service: of a pool of very many slots it reads only the
	// first ones. It writes nothing and keeps no state, and any goroutine may call it
	// concurrently with the other methods.
	Compare(ctx context.Context, want []Object, differs func(k Key, found string)) error

	// Apply applies the whole batch or none of it, if the kernel allows. On
	// success it returns the number of kernel operations. On failure the error is
	// of one of the classes in errors.go.
	Apply(ctx context.Context, b Batch) (Applied, error)

	// Watch calls changed once at its start if anything was written since the last
	// successful Apply or Load, then after each write of another program that may
	// affect owned objects, until ctx ends. If it ends earlier the engine restarts it
	// after a backoff. It is only a notification: Apply itself returns ErrConflict
	// rather than overwrite a change that the driver has not read.
	Watch(ctx context.Context, changed func()) error

	// Changed reports, at a low cost, whether anything was written since the last
	// successful Apply or Load, by another program or by an Apply that failed.
	Changed(ctx context.Context) (bool, error)

	// Cleanup deletes everything that the driver owns, also objects of an earlier
	// process. It is idempotent and needs no state.
	Cleanup(ctx context.Context) error

	// KeyString returns a readable name of an object, for logs and explanations. Pure.
	KeyString(k Key) string
}

// Recaller is a Driver for which a lookup of single objects is expensive, because the kernel returns very many with each.
type Recaller interface {
	// Recall returns the evidence that the engine's actual state is still in sync, at a cost that does not grow with the
	// number of objects. ok is false if Compare is the better choice, because there is little to read or another program
	// has written. Any goroutine may call it.
	Recall(ctx context.Context) (r Recall, ok bool)
}

// Recall is the evidence about the actual state that is available without a lookup of each object.
type Recall struct {
	Read  time.Time // time of the last complete read; the writes of the agent since then are recorded too
	Holds bool      // no other program has written since
	How   string    // the source of Holds, or why it is unknown, as a clause
	Blind string    // the changes that this method cannot detect, as a clause; "": none
}

// Summer is a Driver that computes a checksum of the actual state at a lower cost than a report of each object.
type Summer interface {
	// Sum returns the number of objects that Survey would report, and the sum of their checksums (ObjectSum, PoolSum). It
	// fails as Survey does, and any goroutine may call it.
	Sum(ctx context.Context) (Total, error)
}

// Total is a number of objects and the sum of their checksums. Sum wraps around at 2^64.
type Total struct {
	Objects int
	Sum     uint64
}

// Drainer is a Driver that can detect that lingering objects are unused before their linger time ends.
type Drainer interface {
	// Drained returns those of the lingering objects that are no longer in use. It writes nothing. The engine's goroutine calls it.
	Drained(ctx context.Context, lingering []Key) ([]Key, error)
}

// Parter is a Driver some of whose objects are parts of another object, for example an endpoint that is an object of its own.
type Parter interface {
	// Part returns the object that k is a part of. is is false if k is not a part. Pure.
	Part(k Key) (whole Key, is bool)
}

// Caps holds the results of Probe and the driver's requirements on the engine.
type Caps struct {
	Families []model.Family // the usable families, IPv4 first
	Notes    []string       // notes for the operator, one line each
	// ChunkOps is the largest number of kernel operations that one transaction of a
	// build should have; 0: the engine's default.
	ChunkOps int
	// Pace is the length of the engine's pause after a write, as a multiple of the
	// duration of the write. It is for drivers where the cost of a write grows with
	// the number of existing objects, not of changes; 0: no pause.
	Pace int
	// MaxBackends is the largest number of backends of one Frontend that are served; 0: no limit.
	MaxBackends int
	// Inert reports whether an object has no effect unless another object refers to it,
	// such as a chain without a hook; nil: no object is inert. Pure.
	Inert func(Key) bool
	// DropsStrays reports whether packets to an address in the cluster's Service ranges
	// that belongs to no Service are dropped.
	DropsStrays bool
	// OwnsAddresses reports whether a ClusterIP is a local address of this node, so that the kernel refuses
	// connections to its ports that belong to no Service.
	OwnsAddresses bool
	// OneList reports whether a Frontend has one list of backends in the kernel for all
	// clients. Then the engine adapts its decisions with OneList of package policy, and
	// Render may rely on that.
	OneList bool
	// Unsupported returns in a few words why the driver does not serve a Frontend, "" if it
	// does; nil: it serves every one. Pure. The reason is reported as a problem of the
	// Service, whose other Frontends are served.
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

// Applied is the result of a successful Apply.
type Applied struct {
	Operations int // kernel objects created, changed or deleted (pool slots count one each)
}
