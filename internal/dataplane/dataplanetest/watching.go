package dataplanetest

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// watchPatience is the timeout of the wait for an alarm.
const watchPatience = 30 * time.Second

// alarm is a running Watch; bell is its notify channel.
type alarm struct {
	bell chan struct{}
	stop func()
}

// begin starts the driver's Watch.
func begin(t *testing.T, b *Bed) *alarm {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a := &alarm{bell: make(chan struct{}, 64)} // more notifications than a test causes
	done := make(chan error, 1)
	go func() { done <- b.Driver.Watch(ctx, func() { a.bell <- struct{}{} }) }()
	a.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("watch ended with %v", err)
		}
	}
	return a
}

// watch starts the driver's Watch and returns when it has notified of a foreign
// write. The drift caused by the foreign writes is repaired.
func (s *Subject) watch(t *testing.T, b *Bed) *alarm {
	t.Helper()
	a := begin(t, b)
	rung := false
	for deadline := time.Now().Add(watchPatience); !rung && time.Now().Before(deadline); {
		s.Meddle(t) // until the subscription is in place
		select {
		case <-a.bell:
			rung = true
		case <-time.After(50 * time.Millisecond):
		}
	}
	if !rung {
		a.stop()
		t.Fatal("nobody told us of a foreign write")
	}
	b.Load(t)
	b.Sync(t)
	for len(a.bell) > 0 {
		<-a.bell
	}
	return a
}

// rings waits for a notification.
func (a *alarm) rings(t *testing.T) {
	t.Helper()
	select {
	case <-a.bell:
	case <-time.After(watchPatience):
		t.Fatal("a foreign write went by unseen")
	}
}

func testWatch(t *testing.T, s *Subject) {
	b := s.built(t)
	a := s.watch(t, b)
	defer a.stop()
	for n := 3; n < 9; n++ {
		b.Want(Service(0), ClusterIP(s.Families[0], 0, n))
		b.Sync(t)
	}
	// A foreign write follows the driver's own writes: notifications are in order, so if
	// its notification has arrived, any of the own writes has arrived too.
	s.Meddle(t)
	a.rings(t)
	if n := len(a.bell); n > 0 {
		t.Errorf("%d alarms more than foreign writes", n)
	}
}

// testWatchAgain: the next Watch notifies of a foreign write that happened while no Watch ran.
func testWatchAgain(t *testing.T, s *Subject) {
	b := s.built(t)
	for range 3 {
		s.watch(t, b).stop()
		s.Meddle(t)
		a := begin(t, b)
		a.rings(t)
		a.stop()
		if changed, err := b.Driver.Changed(t.Context()); !changed || err != nil {
			t.Errorf("after the alarm: changed %v, %v", changed, err)
		}
		b.Load(t)
		b.Sync(t)
	}
}

// testNeighbour: another program writes to its own table 500 times a second. Every
// Apply succeeds at the first attempt, no Load reports drift, and Watch sends no
// notification. A foreign write to owned tables is still detected.
func testNeighbour(t *testing.T, s *Subject) {
	if !s.TellsApart {
		t.Skip("this data plane takes every foreign write for one of its own objects")
	}
	b := s.built(t)
	a := s.watch(t, b)
	defer a.stop()
	const writes = 200
	stopped := make(chan struct{})
	defer func() { <-stopped }()
	go func() {
		defer close(stopped)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for range writes {
			<-tick.C
			s.Touch(t)
		}
	}()
	changes := 0
	for busy := true; busy; changes++ {
		select {
		case <-stopped:
			busy = false
		default:
		}
		b.Want(Service(0), ClusterIP(s.Families[0], 0, 3+changes%9))
		if _, err := b.Apply(t.Context(), b.Pending()); err != nil {
			t.Fatalf("change %d: %v", changes, err)
		}
		if changes%20 == 0 {
			if drift := b.Load(t); len(drift) > 0 {
				t.Fatalf("load found %d differences", len(drift))
			}
		}
		runtime.Gosched() // on one processor the other program would run only every 10 ms or more
	}
	if changed, err := b.Driver.Changed(t.Context()); changed || err != nil || len(a.bell) > 0 {
		t.Fatalf("after %d writes of a neighbour: changed %v, %v, %d alarms", writes, changed, err, len(a.bell))
	}
	t.Logf("%d changes of ours among %d of a neighbour", changes, writes)
	s.Meddle(t)
	a.rings(t)
	b.Want(Service(0), ClusterIP(s.Families[0], 0, 2))
	if _, err := b.Apply(t.Context(), b.Pending()); !errors.Is(err, dataplane.ErrConflict) {
		t.Fatalf("apply over a foreign write: %v", err)
	}
	if drift := b.Load(t); len(drift) == 0 {
		t.Fatal("the foreign write is not seen")
	}
	b.Sync(t)
	settled(t, b)
}
