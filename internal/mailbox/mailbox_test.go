package mailbox

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

func service(name string, created int64) model.Event {
	key := model.ServiceKey{Namespace: "default", Name: name}
	return model.Event{Service: &model.Keyed[model.ServiceKey, model.Service]{
		Key: key, Value: &model.Service{Key: key, Created: created},
	}}
}

func TestNewestObjectOldestTime(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := New()
	first := service("a", 1)
	first.Received, first.Problems = t0, []model.Problem{{Object: "old"}}
	second := service("a", 2)
	second.Trigger, second.Received = t0.Add(time.Second), t0.Add(2*time.Second)
	third := service("a", 3)
	third.Trigger, third.Problems = t0.Add(3*time.Second), []model.Problem{{Object: "new"}}
	for _, e := range []model.Event{first, service("b", 1), second, third} {
		m.Put(e)
	}
	got := m.Drain()
	if len(got) != 2 || got[0].Service.Key.Name != "a" || got[1].Service.Key.Name != "b" {
		t.Fatalf("got %+v", got)
	}
	a := got[0]
	if a.Service.Value.Created != 3 || !a.Trigger.Equal(t0.Add(time.Second)) || !a.Received.Equal(t0) {
		t.Errorf("got object %d, trigger %v, received %v", a.Service.Value.Created, a.Trigger, a.Received)
	}
	if len(a.Problems) != 1 || a.Problems[0].Object != "new" {
		t.Errorf("got problems %v", a.Problems)
	}
	if m.Len() != 0 || m.Drain() != nil {
		t.Error("drained twice")
	}
}

// Events that are put together are drained together.
func TestSeveralAtOnce(t *testing.T) {
	m := New()
	var putter sync.WaitGroup
	putter.Go(func() {
		for i := range 10_000 {
			a, b := fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)
			m.Put(service(a, 1), model.Event{}, service(b, 1))
		}
	})
	for seen := 0; seen < 20_000; {
		<-m.Bell()
		events := m.Drain()
		if len(events)%2 != 0 {
			t.Fatalf("%d events at once: a pair was parted", len(events))
		}
		seen += len(events)
	}
	putter.Wait()
	m.Put()
	m.Put(model.Event{})
	if m.Len() != 0 || len(m.Bell()) != 0 && m.Drain() != nil {
		t.Error("events that say nothing are in the box")
	}
}

// What is not the same thing must not replace each other, even under one name.
func TestKindsDoNotMix(t *testing.T) {
	m := New()
	sliceKey := model.SliceKey{Namespace: "default", Name: "x"}
	events := []model.Event{
		service("x", 1),
		{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: sliceKey}},
		{Node: &model.Keyed[string, model.Node]{Key: "x"}},
		{Listed: "x"},
		{Synced: "x"},
		{Origin: "x"},
		{Host: &model.HostAddrs{}},
		{CIDRs: &model.ServiceCIDRs{}},
		{Exclusions: &model.Exclusions{}},
	}
	for range 2 {
		for _, e := range events {
			m.Put(e)
		}
	}
	m.Put(model.Event{}) // says nothing
	if got := m.Drain(); len(got) != len(events) {
		t.Errorf("got %d events of %d", len(got), len(events))
	}
}

func TestBellRings(t *testing.T) {
	m := New()
	select {
	case <-m.Bell():
		t.Fatal("rings for nothing")
	default:
	}
	m.Put(service("a", 1))
	m.Put(service("b", 1)) // must not wait for anybody
	select {
	case <-m.Bell():
	default:
		t.Fatal("does not ring")
	}
	if got := m.Drain(); len(got) != 2 {
		t.Errorf("got %d events", len(got))
	}
}

// Whatever the interleaving, the last object put of each key arrives last, and
// after the bell has rung there is nothing left behind.
func TestManyProducers(t *testing.T) {
	const producers, rounds = 8, 2000
	m := New()
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for i := range int64(rounds) {
				m.Put(service(fmt.Sprint(p), i+1))
			}
		})
	}
	last := map[string]int64{}
	drain := func() {
		for _, e := range m.Drain() {
			if v := e.Service.Value.Created; v <= last[e.Service.Key.Name] {
				t.Errorf("%s went from %d to %d", e.Service.Key.Name, last[e.Service.Key.Name], v)
			}
			last[e.Service.Key.Name] = e.Service.Value.Created
		}
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-m.Bell():
		case <-done:
			running = false
		}
		drain()
	}
	for p := range producers {
		if last[fmt.Sprint(p)] != rounds {
			t.Errorf("producer %d: last is %d", p, last[fmt.Sprint(p)])
		}
	}
}

func BenchmarkPut(b *testing.B) {
	m := New()
	e := service("a", 1)
	b.ReportAllocs()
	for b.Loop() {
		m.Put(e)
	}
}

// TestWaiting: what is drained waits on until it is committed, and what came after the
// drain is not taken for committed with it.
func TestWaiting(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(name string, after time.Duration) model.Event {
		e := service(name, 1)
		e.Received = t0.Add(after)
		return e
	}
	m := New()
	wants := func(step string, services int, want time.Time) {
		t.Helper()
		if got := m.Waiting(); !got.Oldest.Equal(want) || got.Services != services || got.Slices != 0 {
			t.Errorf("%s: waiting: %+v, want %d Services since %v", step, got, services, want)
		}
	}
	wants("nothing", 0, time.Time{})
	m.Put(model.Event{Synced: "x", Received: t0})
	wants("no change of a Service", 0, time.Time{})
	m.Put(at("a", 2))
	m.Put(at("a", 5))
	m.Put(at("b", 1))
	wants("the oldest of three", 2, t0.Add(1))
	m.Drain()
	wants("drained, not committed", 2, t0.Add(1))
	m.Put(at("c", 9))
	wants("one more in the box", 3, t0.Add(1))
	m.Drain()
	wants("drained, and nothing committed since", 3, t0.Add(1))
	m.Put(at("d", 9))
	m.Committed()
	wants("only that one left", 1, t0.Add(9))
	m.Drain()
	m.Drain()
	wants("drained twice", 1, t0.Add(9))
	m.Committed()
	wants("all committed", 0, time.Time{})
}
