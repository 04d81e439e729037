package conntrack

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// heard gathers events.
type heard struct {
	mu     sync.Mutex
	events []Event
	lost   int
}

func (h *heard) take(e *Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, *e)
}

func (h *heard) count() (begun, ended int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.events {
		if h.events[i].Ended {
			ended++
		} else {
			begun++
		}
	}
	return begun, ended
}

// follow subscribes and returns the received events.
func follow(t *testing.T, onlyDNAT bool) *heard {
	t.Helper()
	h := &heard{}
	events, err := OpenEvents(onlyDNAT)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- events.Follow(ctx, h.take, func() { h.lost++ }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("following ended with %v", err)
		}
		_ = events.Close()
	})
	return h
}

// TestFollow: each flow that begins and each that ends is reported, with its tuples; untranslated ones are dropped if
// only translated ones are requested.
func TestFollow(t *testing.T) {
	c := ownTable(t)
	all, translated := follow(t, false), follow(t, true)
	x := flow(udp, "10.0.0.1:1001", "10.96.0.1:53", "10.1.0.1:5353")
	create(t, c, []Flow{x})
	var there []Flow
	if err := c.Flows(t.Context(), Filter{}, func(x Flow) { there = append(there, x) }); err != nil || len(there) != 1 {
		t.Fatal(there, err)
	}
	if n, err := c.Delete(t.Context(), there); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // another goroutine reads
		begun, ended := all.count()
		if begun == 1 && ended == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("heard of %d flows that began and %d that ended, want 1 and 1", begun, ended)
		}
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	for i := range all.events {
		if e := &all.events[i]; e.Orig != x.Orig || e.Reply.Src != x.Reply.Src || e.Protocol != udp {
			t.Errorf("heard of %s, want %s", &e.Flow, &x)
		}
	}
	if begun, ended := translated.count(); begun+ended > 0 {
		t.Errorf("%d flows that were not translated are told", begun+ended)
	}
}

// script is a Wire that returns scripted results.
type script struct {
	netlink.Wire
	next func(b []byte) (int, error)
}

func (s script) Receive(b []byte, _ bool) (int, error) { return s.next(b) }

// TestLostEvents: a full buffer and a truncated datagram are losses, an interruption is not, and a socket that returns
// only errors is abandoned.
func TestLostEvents(t *testing.T) {
	answers := []error{unix.ENOBUFS, nil, unix.EINTR}
	at, lost := 0, 0
	err := readEvents(t.Context(), script{next: func(b []byte) (int, error) {
		at++
		if at > len(answers) {
			return 0, unix.EINTR
		}
		return len(b) + 1, answers[at-1]
	}}, func(*Event) { t.Error("an event of nothing") }, func() { lost++ })
	if err == nil || lost != 2 || at > 2*maxBadReads {
		t.Errorf("%v after %d reads, %d losses", err, at, lost)
	}
}

// BenchmarkFollow measures the cost of flows that begin and end, to the kernel and to the subscriber, without and with a subscriber.
func BenchmarkFollow(b *testing.B) {
	for _, listening := range []bool{false, true} {
		b.Run(map[bool]string{false: "nobody", true: "somebody"}[listening], func(b *testing.B) {
			c := ownTable(b)
			if listening {
				events, err := OpenEvents(false)
				if err != nil {
					b.Fatal(err)
				}
				go func() { _ = events.Follow(b.Context(), func(*Event) {}, func() { b.Log("some events were lost") }) }()
			}
			flows := manyFlows(10_000)
			var used, now unix.Rusage
			_ = unix.Getrusage(unix.RUSAGE_SELF, &used)
			for b.Loop() {
				create(b, c, flows)
				var there []Flow
				_ = c.Flows(b.Context(), Filter{}, func(x Flow) { there = append(there, x) })
				if n, err := c.Delete(b.Context(), there); n != len(flows) || err != nil {
					b.Fatal(n, err)
				}
			}
			_ = unix.Getrusage(unix.RUSAGE_SELF, &now)
			cpu := now.Utime.Nano() + now.Stime.Nano() - used.Utime.Nano() - used.Stime.Nano()
			b.ReportMetric(float64(cpu)/float64(b.N*len(flows)), "cpu-ns/flow")
		})
	}
}
