package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/mailbox"
	"github.com/fairlead/fairlead/internal/model"
)

// memDriver is a data plane whose kernel is a map. It refuses what a kernel
// refuses (creating what is there, changing what is not as we think) and counts.
type memDriver struct {
	mu     sync.Mutex
	kernel map[dataplane.Key]string
	moved  bool       // a foreign write since our last look
	ring   func()     // of the Watch that runs
	cut    chan error // ends the Watch that runs, with this

	counts
	// fail and failLoad are called with mu held, so they must not wait: in a synctest bubble the
	// clock stands still while a goroutine wants mu.
	fail                  func(b dataplane.Batch) error
	lose                  error // the answer to the next Apply that works
	failLoad              func() error
	loadTakes, applyTakes time.Duration
	failWatch             error // a Watch ends with it before it stands
	// during is called half way through a Survey, with what it is about to report; nil: nothing happens.
	during  func(seen map[dataplane.Key]string)
	digests bool // a Survey returns digests for values
}

// counts is what the driver was asked to do.
type counts struct{ loads, applies, ops, changed, rebuilds, biggest, watches, surveys int }

func (d *memDriver) count() counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts
}

const (
	kindChain = dataplane.KindRoot + 1 + iota
	kindPool
	kindVerdict
)

func newMemDriver() *memDriver {
	return &memDriver{kernel: map[dataplane.Key]string{}, cut: make(chan error)}
}

func (d *memDriver) Name() string                                  { return "mem" }
func (d *memDriver) Shared(k dataplane.Key) bool                   { return k.Kind == kindChain }
func (d *memDriver) Probe(context.Context) (dataplane.Caps, error) { return dataplane.Caps{}, nil }
func (d *memDriver) ViewChanged(o, n *model.NodeView) bool         { return o.MasqueradeAll != n.MasqueradeAll }

func (d *memDriver) Base(_ model.NodeView, emit func(dataplane.Object)) {
	emit(dataplane.Object{Key: key(dataplane.KindRoot, ""), Value: "root"})
}

func (d *memDriver) Render(f *model.Frontend, _ *model.NodeView, emit func(dataplane.Object)) {
	id := f.Key.String()
	if f.Verdict != model.Forward {
		emit(dataplane.Object{Key: key(kindVerdict, id), Value: f.Verdict.String()})
		return
	}
	class := fmt.Sprintf("lb-%d", len(f.Backends))
	emit(dataplane.Object{Key: key(kindChain, class), Value: "rules"})
	pool := ""
	for _, b := range f.Backends {
		a := b.Addr.As4()
		pool += string(a[:])
	}
	emit(dataplane.Object{Key: key(kindPool, id), Value: pool})
	emit(dataplane.Object{Key: key(kindVerdict, id), Value: "goto " + class})
}

func (d *memDriver) Width(k dataplane.Key) int {
	if k.Kind == kindPool {
		return 4
	}
	return 0
}

func (d *memDriver) Linger(k dataplane.Key) time.Duration {
	if k.Kind == kindChain {
		return 10 * time.Second
	}
	return 0
}

func (d *memDriver) Load(ctx context.Context, emit func(dataplane.Key, string)) error {
	d.mu.Lock()
	d.loads++
	takes := d.loadTakes
	d.mu.Unlock()
	if takes > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(takes):
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failLoad != nil {
		if err := d.failLoad(); err != nil {
			return err
		}
	}
	d.moved = false
	for k, v := range d.kernel {
		emit(k, v)
	}
	return nil
}

// Survey takes as long as a Load, and sees a key as it is half way through.
func (d *memDriver) Survey(ctx context.Context, emit func(dataplane.Key, string)) error {
	d.mu.Lock()
	d.surveys++
	takes := d.loadTakes
	d.mu.Unlock()
	time.Sleep(takes / 2) // synctest's clock, no real time: a Survey takes time before it sees a key
	seen := d.snapshot()
	if d.during != nil {
		d.during(seen)
	}
	time.Sleep(takes / 2) // synctest's clock, no real time: and after it
	if err := d.loadFails(); err != nil {
		return err
	}
	for _, o := range inOrder(seen) {
		if d.digests && d.Width(o.Key) == 0 { // pools are compared slot by slot
			o.Value = digestOf(o.Value)
		}
		emit(o.Key, o.Value)
	}
	return ctx.Err()
}

func (d *memDriver) loadFails() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failLoad == nil {
		return nil
	}
	return d.failLoad()
}

func (d *memDriver) Apply(_ context.Context, b dataplane.Batch) (dataplane.Applied, error) {
	d.mu.Lock()
	d.applies++
	takes := d.applyTakes
	d.mu.Unlock()
	if takes > 0 {
		time.Sleep(takes) // virtual time (synctest)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moved {
		return dataplane.Applied{}, dataplane.ErrConflict
	}
	if d.fail != nil {
		if err := d.fail(b); err != nil {
			return dataplane.Applied{}, err
		}
	}
	next, n := maps.Clone(d.kernel), 0
	for _, f := range b.Rebuild {
		maps.DeleteFunc(next, func(k dataplane.Key, _ string) bool { return k.Family == f })
		d.rebuilds++
	}
	slices.SortStableFunc(b.Ops, func(x, y dataplane.Op) int { return int(x.Key.Kind) - int(y.Key.Kind) })
	for _, op := range b.Ops {
		if next[op.Key] != op.Have {
			return dataplane.Applied{}, &dataplane.InvalidError{Keys: []dataplane.Key{op.Key}, Err: errors.New("not as you think")}
		}
		delete(next, op.Key)
		if op.Want != "" {
			next[op.Key] = op.Want
		}
		n += d.slots(op)
	}
	d.kernel = next
	d.ops += n
	d.biggest = max(d.biggest, n)
	if err := d.lose; err != nil {
		d.lose, d.moved = nil, true
		return dataplane.Applied{}, err
	}
	return dataplane.Applied{Operations: n}, nil
}

// slots counts the slots of a pool that differ, and 1 for anything else.
func (d *memDriver) slots(op dataplane.Op) (n int) {
	w := d.Width(op.Key)
	if w == 0 {
		return 1
	}
	for at := 0; at < max(len(op.Have), len(op.Want)); at += w {
		if op.Have[min(at, len(op.Have)):min(at+w, len(op.Have))] != op.Want[min(at, len(op.Want)):min(at+w, len(op.Want))] {
			n++
		}
	}
	return n
}

func (d *memDriver) Watch(ctx context.Context, changed func()) error {
	d.mu.Lock()
	d.watches++
	if d.failWatch != nil {
		defer d.mu.Unlock()
		return d.failWatch
	}
	d.ring = changed
	if d.moved {
		changed()
	}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ring = nil
	}()
	select {
	case <-ctx.Done():
		return nil
	case err := <-d.cut:
		return err
	}
}

func (d *memDriver) Changed(context.Context) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed++
	return d.moved, nil
}

func (d *memDriver) Compare(_ context.Context, want []dataplane.Object, differs func(dataplane.Key, string)) error {
	there := d.snapshot()
	for i := range want {
		if is := there[want[i].Key]; is != want[i].Value {
			differs(want[i].Key, is)
		}
	}
	return nil
}

func (d *memDriver) Cleanup(context.Context) error { return nil }

func (d *memDriver) KeyString(k dataplane.Key) string { return k.String() }

// foreign simulates a write of another program, and raises an alarm.
func (d *memDriver) foreign(edit func(map[dataplane.Key]string)) {
	d.mu.Lock()
	edit(d.kernel)
	d.moved = true
	ring := d.ring
	d.mu.Unlock()
	if ring != nil {
		ring()
	}
}

func (d *memDriver) snapshot() map[dataplane.Key]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.kernel)
}

// ---- events

func svcEvent(i int, port uint16) model.Event {
	k := model.ServiceKey{Namespace: "default", Name: fmt.Sprintf("svc-%05d", i)}
	return model.Event{Received: time.Now(), Service: &model.Keyed[model.ServiceKey, model.Service]{Key: k, Value: &model.Service{
		Key: k, Proxied: true, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})},
		Ports: []model.ServicePort{{Protocol: model.TCP, Port: port}}}}}
}

func goneEvent(i int) model.Event {
	k := model.ServiceKey{Namespace: "default", Name: fmt.Sprintf("svc-%05d", i)}
	return model.Event{Service: &model.Keyed[model.ServiceKey, model.Service]{Key: k}}
}

func sliceEvent(i int, eps ...int) model.Event {
	k := model.SliceKey{Namespace: "default", Name: fmt.Sprintf("svc-%05d-1", i)}
	sl := &model.Slice{Key: k, Service: model.ServiceKey{Namespace: "default", Name: fmt.Sprintf("svc-%05d", i)}, Family: model.IPv4,
		Ports: []model.SlicePort{{Protocol: model.TCP, Port: 8080}}}
	for _, e := range eps {
		sl.Endpoints = append(sl.Endpoints, model.Endpoint{Addr: netip.AddrFrom4([4]byte{10, byte(128 + e>>16), byte(e >> 8), byte(e)}), Ready: true, Serving: true})
	}
	return model.Event{Received: time.Now(), Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: k, Value: sl}}
}

// bench is an engine on a memDriver, with its turns recorded.
type bench struct {
	*Engine
	drv  *memDriver
	mb   *mailbox.Mailbox
	mu   sync.Mutex
	seen []Turn
}

func newBench(drv *memDriver, tune func(*Params)) *bench {
	b := &bench{drv: drv, mb: mailbox.New()}
	p := Params{Driver: drv, Families: []model.Family{model.IPv4, model.IPv6}, Mailbox: b.mb, NodeName: "n", Sources: []string{"file"},
		OnTurn: func(t *Turn) {
			b.mu.Lock()
			defer b.mu.Unlock()
			c := *t
			c.Quarantined, c.Drift = slices.Clone(t.Quarantined), slices.Clone(t.Drift)
			b.seen = append(b.seen, c)
		}}
	if tune != nil {
		tune(&p)
	}
	b.Engine = New(p)
	return b
}

// put returns the engine events that it folds in one turn.
func (b *bench) put(evs ...model.Event) { b.mb.Put(evs...) }

func (b *bench) turns() []Turn {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.seen)
}

func (b *bench) last() Turn {
	all := b.turns()
	if len(all) == 0 {
		return Turn{}
	}
	return all[len(all)-1]
}
