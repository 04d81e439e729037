package engine

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// world is everything that exists outside, and what the engine was told of it.
type world struct {
	r        *rand.Rand
	services map[int]model.Event
	slices   map[string]model.Event
	host     model.Event
	unheard  map[string]model.Event // by key: events that a disconnected source has not delivered
	cutOff   bool
}

const worldServices = 8

// change makes one random change and returns its event, under its key.
func (w *world) change() (string, model.Event) {
	i := w.r.IntN(worldServices)
	switch w.r.IntN(10) {
	case 0:
		w.host = hostEvent("192.168.1.1/24", fmt.Sprintf("192.168.1.%d/24", 2+w.r.IntN(2)))
		return "host", w.host
	case 1, 2:
		ev := goneEvent(i)
		delete(w.services, i)
		if w.r.IntN(3) > 0 {
			ev = svcEvent(i, uint16(80+w.r.IntN(3)))
			svc := ev.Service.Value
			svc.Created = int64(w.r.IntN(3))
			if w.r.IntN(3) == 0 { // contested
				svc.ExternalIPs = []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(w.r.IntN(2))})}
			}
			svc.SourceGuarded = w.r.IntN(4) == 0
			w.services[i] = ev
		}
		return fmt.Sprint("svc", i), ev
	}
	name := string(rune('a' + w.r.IntN(3)))
	at := fmt.Sprint(i, name)
	if w.r.IntN(5) == 0 {
		delete(w.slices, at)
		return at, noSlice(i, name)
	}
	var eps []int
	for e := range 9 {
		if w.r.IntN(3) == 0 {
			eps = append(eps, 20*i+e)
		}
	}
	w.slices[at] = inSlice(i, name, eps...)
	return at, w.slices[at]
}

// step changes the world and sends the event to the engine, unless the source is disconnected.
func (w *world) step(b *bench) {
	at, ev := w.change()
	w.unheard[at] = ev
	if w.r.IntN(20) == 0 {
		w.cutOff = !w.cutOff
	}
	if w.cutOff {
		return
	}
	for _, k := range slices.Sorted(maps.Keys(w.unheard)) {
		b.put(w.unheard[k])
	}
	clear(w.unheard)
}

// all returns the events that a source delivers at its start.
func (w *world) all() []model.Event {
	out := []model.Event{w.host}
	out = slices.AppendSeq(out, maps.Values(w.services))
	return append(slices.AppendSeq(out, maps.Values(w.slices)), synced)
}

// mischief makes the kernel refuse, fail, lose answers and be changed by others.
func (w *world) mischief(d *memDriver) {
	switch n := w.r.IntN(40); n {
	case 0, 1, 2: // some kind of object of some Services is refused, until case 3
		bad, kind := byte('0'+w.r.IntN(worldServices)), []dataplane.Kind{kindPool, kindVerdict, kindChain}[n]
		d.refuse(func(op dataplane.Op) bool {
			return op.Want != "" && op.Key.Kind == kind && strings.IndexByte(op.Key.ID, bad) > 0
		})
	case 3, 4, 5:
		d.refuse(nil)
	case 6:
		d.mu.Lock()
		d.lose = errors.New("no buffer space, says the test")
		d.mu.Unlock()
	case 7:
		d.foreign(func(k map[dataplane.Key]string) {
			for at := range k {
				if w.r.IntN(4) == 0 && at.Kind != dataplane.KindRoot {
					delete(k, at)
				}
			}
		})
	case 8:
		failures := 1 + w.r.IntN(8)
		d.mu.Lock()
		d.fail = func(b dataplane.Batch) error {
			if failures--; failures >= 0 {
				return errors.New("no memory, says the test")
			}
			return nil
		}
		d.mu.Unlock()
	case 9:
		full := true
		d.mu.Lock()
		d.fail = func(b dataplane.Batch) error {
			if full && len(b.Rebuild) == 0 {
				return &dataplane.RebuildError{Families: []model.Family{model.IPv4}, Why: "a set is full"}
			}
			full = false
			return nil
		}
		d.mu.Unlock()
	}
}

// Whatever happened, and in whatever order: when nothing is refused any more, the
// kernel holds what an engine writes that starts on an empty one, and the followers
// know just that.
func TestHistoryDoesNotMatter(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) { checkHistory(t, seed) })
	}
}

func checkHistory(t *testing.T, seed uint64) {
	w := &world{r: rand.New(rand.NewPCG(seed, 7)), services: map[int]model.Event{}, slices: map[string]model.Event{},
		unheard: map[string]model.Event{}, host: hostEvent("192.168.1.1/24")}
	drv := newMemDriver()
	tune := func(p *Params) {
		p.MinSync = time.Duration(w.r.IntN(3)) * 200 * time.Millisecond
		p.ChunkOps = 1 + w.r.IntN(20)
	}
	told := map[model.ServiceKey]string{}
	for range 3 { // restarts
		b := newBench(drv, tune)
		onTurn := b.p.OnTurn
		clear(told)
		b.p.OnTurn = func(t *Turn) {
			onTurn(t)
			if t.Err == nil {
				learn(told, t.Decided)
			}
		}
		run(t, b, func() {
			b.put(w.all()...)
			clear(w.unheard)
			w.cutOff = false
			for range 60 {
				w.step(b)
				w.mischief(drv)
				time.Sleep(time.Duration(w.r.IntN(150)) * time.Millisecond) // virtual time (synctest)
			}
			drv.refuse(nil)
			for _, ev := range w.unheard {
				b.put(ev)
			}
			time.Sleep(2 * time.Hour) // virtual time (synctest): retries, lingering, an audit
			synctest.Wait()
		})
	}
	fresh, known := newBench(newMemDriver(), nil), map[model.ServiceKey]string{}
	run(t, fresh, func() { fresh.put(w.all()...); synctest.Wait() })
	learn(known, fresh.last().Decided)
	expectSame(t, drv.snapshot(), fresh.drv.snapshot())
	if !maps.Equal(told, known) {
		t.Errorf("the followers were told %v, not %v", told, known)
	}
	if t.Failed() {
		t.Fatalf("seed %d", seed)
	}
}

// learn handles decisions like an observer.
func learn(told map[model.ServiceKey]string, list []Decided) {
	for _, d := range list {
		delete(told, d.Key)
		if len(d.Result.Frontends) > 0 {
			told[d.Key] = fmt.Sprintf("%+v", d.Result.Frontends)
		}
	}
}

// expectSame compares kernels, whatever the order of slots; chains may linger.
func expectSame(t *testing.T, got, want map[dataplane.Key]string) {
	t.Helper()
	for _, m := range []map[dataplane.Key]string{got, want} {
		for k, v := range m {
			if k.Kind == kindPool {
				slots := slices.Sorted(slices.Values(slices.Collect(chunksOf(v, 4))))
				m[k] = strings.Trim(strings.Join(slots, ""), "\x00")
			}
		}
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%v %q is %q, want %q", k.Kind, k.ID, got[k], v)
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok && k.Kind != kindChain {
			t.Errorf("left over: %v %q", k.Kind, k.ID)
		}
	}
}

func chunksOf(s string, n int) func(func(string) bool) {
	return func(yield func(string) bool) {
		for at := 0; at < len(s); at += n {
			if !yield(s[at : at+n]) {
				return
			}
		}
	}
}
