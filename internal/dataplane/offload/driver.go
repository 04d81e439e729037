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

// Reader is what our tables are read by. No other data plane needs flowtables, so they are no part of nft.Reader.
type Reader interface {
	nft.Reader
	Flowtables(context.Context, nft.TableRef) ([]nft.Flowtable, error)
}

// Params configure the acceleration.
type Params struct {
	Kernel nft.Kernel
	// Flowtables lists those of a table.
	Flowtables func(context.Context, nft.TableRef) ([]nft.Flowtable, error)
	// Reader reads everything beside the engine, for Survey, which fails without one.
	Reader Reader
	// Finder looks at single objects when somebody asks, beside the engine's work; nil: nobody is answered.
	Finder nft.Finder
	// Ledger is that of the driver beside, if it writes by the same Kernel: it watches our table too (IsTable). nil: we have
	// one of our own and watch by ourselves.
	Ledger *nft.Ledger
	// Wrote is told the generation that a commit of ours made, for a driver beside that keeps account of generations in
	// another way; may be nil.
	Wrote func(nft.Generation)
	// Prepare is called when the kernel has proved to have flowtables, before the first rule counts packets; may be nil.
	Prepare func()
	// Threshold: a connection of more packets, both directions together, is taken past the rules. 0: none is, and what
	// is there of us is removed.
	Threshold int
	// Off says why Threshold is 0 although it was asked for.
	Off string
	// Links returns the devices that are up.
	Links func() ([]model.Link, error)
	// Include and Exclude are patterns (path.Match) of devices; no Include: all.
	Include, Exclude []string
	Log              *slog.Logger
	Now              func() time.Time
}

// Driver is a data plane and the acceleration beside it. All that it does not name itself is the other's.
type Driver struct {
	dataplane.Driver
	s *side
}

var _ dataplane.Driver = (*Driver)(nil)

// New makes a Driver. It touches nothing.
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

// Probe implements dataplane.Driver: that there is no acceleration is no error.
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

// Shared implements dataplane.Driver: to lose an object of its own costs acceleration only.
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

// Apply implements dataplane.Driver: the Services first, and whatever becomes of the rest, they are in.
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

// without returns the operations of the driver beside.
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

// Status reports how the acceleration is. Any goroutine may ask.
func (d *Driver) Status() Status { return d.s.status() }
