package offload

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Reader reads the tables of this package. Flowtables is not a part of nft.Reader because no other data plane needs it.
type Reader interface {
	nft.Reader
	Flowtables(context.Context, nft.TableRef) ([]nft.Flowtable, error)
}

// Params configure the acceleration.
type Params struct {
	Kernel nft.Kernel
	// Flowtables returns the flowtables of a table.
	Flowtables func(context.Context, nft.TableRef) ([]nft.Flowtable, error)
	// Reader reads the tables for Survey, concurrently with the engine. Survey returns an error if it is nil.
	Reader Reader
	// Finder looks up single objects for Compare, concurrently with the engine; nil: Compare reports nothing.
	Finder nft.Finder
	// Ledger is the ledger of the wrapped driver, if that driver writes through the same Kernel; it then watches the tables of
	// this package too (IsTable). nil: this package has its own ledger and its own watch.
	Ledger *nft.Ledger
	// Wrote is called with the generation of each commit of this package, for a wrapped driver that accounts for generations
	// in another way; may be nil.
	Wrote func(nft.Generation)
	// Prepare is called when Probe has found that the kernel supports flowtables, before the first rule counts packets; may be nil.
	Prepare func()
	// Threshold is the number of packets, of both directions together, above which a connection is offloaded to the flowtable.
	// 0: no connection is offloaded, and the existing tables of this package are removed.
	Threshold int
	// Off is the reason why Threshold is 0 although the acceleration was requested; "" otherwise.
	Off string
	// Links returns the devices that are up.
	Links func() ([]model.Link, error)
	// Include and Exclude are patterns (path.Match) of device names. An empty Include matches all devices.
	Include, Exclude []string
	Log              *slog.Logger
	Now              func() time.Time
}

// Driver is a data plane that wraps another one and adds the acceleration. Methods that it does not define are those of the wrapped
// driver.
type Driver struct {
	dataplane.Driver
	s *side
}

var _ dataplane.Driver = (*Driver)(nil)

// New returns a Driver that wraps beside. It does not access the kernel.
func New(beside dataplane.Driver, p Params) *Driver {
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	if p.Now == nil {
		p.Now = time.Now
	}
	s := &side{p: p, seen: p.Ledger, book: newBook(), state: Status{Threshold: p.Threshold, Why: p.Off, Refused: map[string]uint64{}}}
	if p.Off != "" {
		s.state.Refused["fault"] = 1
	}
	if s.seen == nil {
		s.seen, s.own = &nft.Ledger{}, true
	}
	return &Driver{Driver: beside, s: s}
}

// Probe implements dataplane.Driver. A kernel without acceleration causes a note in Caps, not an error.
func (d *Driver) Probe(ctx context.Context) (dataplane.Caps, error) {
	caps, err := d.Driver.Probe(ctx)
	if err != nil {
		return caps, err
	}
	if why := d.s.probe(ctx, caps.Families); why != "" {
		caps.Notes = append(caps.Notes, "connections to Services are not accelerated: "+why)
	}
	return caps, nil
}

// Base implements dataplane.Driver.
func (d *Driver) Base(v model.NodeView, emit func(dataplane.Object)) {
	d.Driver.Base(v, emit)
	d.s.base(&v, emit)
}

// Render implements dataplane.Driver.
func (d *Driver) Render(f *model.Frontend, v *model.NodeView, emit func(dataplane.Object)) {
	d.Driver.Render(f, v, emit)
	d.s.render(f, emit)
}

// Width implements dataplane.Driver.
func (d *Driver) Width(k dataplane.Key) int {
	if isMine(k) {
		return 0
	}
	return d.Driver.Width(k)
}

// Linger implements dataplane.Driver.
func (d *Driver) Linger(k dataplane.Key) time.Duration {
	if isMine(k) {
		return 0
	}
	return d.Driver.Linger(k)
}

// Shared implements dataplane.Driver. It returns false for the objects of this package: the loss of one affects the acceleration only.
func (d *Driver) Shared(k dataplane.Key) bool { return !isMine(k) && d.Driver.Shared(k) }

// KeyString implements dataplane.Driver.
func (d *Driver) KeyString(k dataplane.Key) string {
	if isMine(k) {
		return keyString(k)
	}
	return d.Driver.KeyString(k)
}

// Load implements dataplane.Driver.
func (d *Driver) Load(ctx context.Context, emit func(dataplane.Key, string)) error {
	err := d.Driver.Load(ctx, emit)
	var rebuild *dataplane.RebuildError
	if err != nil && !errors.As(err, &rebuild) {
		return err
	}
	d.s.load(ctx, emit)
	return errors.Join(err, context.Cause(ctx))
}

// Survey implements dataplane.Driver.
func (d *Driver) Survey(ctx context.Context, emit func(dataplane.Key, string)) error {
	err := d.Driver.Survey(ctx, emit)
	var rebuild *dataplane.RebuildError
	if err != nil && !errors.As(err, &rebuild) {
		return err
	}
	return errors.Join(err, d.s.survey(ctx, emit))
}

// Compare implements dataplane.Driver.
func (d *Driver) Compare(ctx context.Context, want []dataplane.Object, differs func(dataplane.Key, string)) error {
	var theirs, ours []dataplane.Object
	for _, o := range want {
		if isMine(o.Key) {
			ours = append(ours, o)
		} else {
			theirs = append(theirs, o)
		}
	}
	err := d.Driver.Compare(ctx, theirs, differs)
	d.s.compare(ctx, ours, differs)
	return err
}

// Apply implements dataplane.Driver. The wrapped driver applies its operations first; a failure of the acceleration does not affect
// them.
func (d *Driver) Apply(ctx context.Context, b dataplane.Batch) (dataplane.Applied, error) {
	theirs := b
	theirs.Ops = nil
	var ours []dataplane.Op
	for i := range b.Ops {
		if isMine(b.Ops[i].Key) {
			ours = append(ours, b.Ops[i])
		}
	}
	if len(ours) == 0 {
		theirs.Ops = b.Ops
	} else {
		theirs.Ops = without(b.Ops, len(ours))
	}
	if b.Later != nil {
		theirs.Later = func(yield func(dataplane.Op) bool) {
			for op := range b.Later {
				if !isMine(op.Key) && !yield(op) {
					return
				}
			}
		}
	}
	done, err := d.Driver.Apply(ctx, theirs)
	if err != nil {
		return done, err
	}
	done.Operations += d.s.apply(ctx, ours, b.Rebuild)
	return done, nil
}

// without returns the operations of the wrapped driver. mine is the number of the other ones.
func without(ops []dataplane.Op, mine int) []dataplane.Op {
	out := make([]dataplane.Op, 0, len(ops)-mine)
	for i := range ops {
		if !isMine(ops[i].Key) {
			out = append(out, ops[i])
		}
	}
	return out
}

// Changed implements dataplane.Driver.
func (d *Driver) Changed(ctx context.Context) (bool, error) {
	if changed, err := d.Driver.Changed(ctx); changed || err != nil {
		return changed, err
	}
	return d.s.changed(ctx)
}

// Watch implements dataplane.Driver.
func (d *Driver) Watch(ctx context.Context, changed func()) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.s.watch(ctx, changed)
	}()
	err := d.Driver.Watch(ctx, changed)
	stop()
	<-ended
	return err
}

// Cleanup implements dataplane.Driver.
func (d *Driver) Cleanup(ctx context.Context) error {
	return errors.Join(Remove(ctx, d.s.p.Kernel), d.Driver.Cleanup(ctx))
}

// Status returns the state of the acceleration. Any goroutine may call it.
func (d *Driver) Status() Status { return d.s.status() }
