package node

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/model"
)

// fakeLinks is a machine whose addresses a test sets.
type fakeLinks struct {
	mu      sync.Mutex
	addrs   []link.Addr
	up      []link.Link
	err     error // of Addrs
	openErr error
	changed chan struct{}
	opened  int
	closed  int
	lists   int
}

var _ Links = (*fakeLinks)(nil)

func (f *fakeLinks) open() (Links, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.openErr != nil {
		return nil, f.openErr
	}
	f.opened++
	return f, nil
}

func (f *fakeLinks) Addrs() ([]link.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	return f.addrs, f.err
}

func (f *fakeLinks) Up() ([]link.Link, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.up, f.err
}

func (f *fakeLinks) Changed() <-chan struct{} { return f.changed }

func (f *fakeLinks) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
}

func (f *fakeLinks) set(err error, texts ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addrs, f.err = nil, err
	for _, t := range texts {
		f.addrs = append(f.addrs, link.Addr{Prefix: netip.MustParsePrefix(t), Link: "eth0"})
	}
}

// run runs a Watcher in a bubble of fake time; what it delivered is in the result
// whenever the bubble is idle.
func run(t *testing.T, f *fakeLinks) *[]model.Event {
	f.changed = make(chan struct{}, 1)
	var events []model.Event
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	asked := f.up != nil
	go func() {
		done <- New(Config{Open: f.open, Up: func() bool { return asked }, Log: slog.New(slog.DiscardHandler)}).Run(ctx, func(e model.Event) { events = append(events, e) })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if f.opened != f.closed {
			t.Errorf("opened %d, closed %d", f.opened, f.closed)
		}
	})
	synctest.Wait()
	return &events
}

// later lets fake time pass, and all that happens in it happen.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestAddressesThenSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLinks{}
		f.set(nil, "192.0.2.1/24")
		events := run(t, f)
		if len(*events) != 2 || (*events)[0].Host == nil || (*events)[1].Synced != Name {
			t.Fatalf("got %+v", *events)
		}
		f.changed <- struct{}{} // about nothing
		later(2 * settle)
		if len(*events) != 2 {
			t.Errorf("no change gave %+v", (*events)[2:])
		}
		f.set(nil, "192.0.2.1/24", "192.0.2.2/24")
		f.changed <- struct{}{}
		later(2 * settle)
		if len(*events) != 3 || len((*events)[2].Host.Addrs) != 2 || (*events)[2].Trigger.IsZero() {
			t.Errorf("a change gave %+v", (*events)[2:])
		}
	})
}

// Links are told of only where they are asked for. One of another index is another one.
func TestLinksThatAreUp(t *testing.T) {
	for _, asked := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeLinks{}
			if asked {
				f.up = []link.Link{{Name: "eth0", Index: 2}}
			}
			events := run(t, f)
			f.mu.Lock()
			f.up = []link.Link{{Name: "eth0", Index: 7}}
			f.mu.Unlock()
			f.changed <- struct{}{}
			later(2 * settle)
			var got []model.Link
			for _, e := range *events {
				if e.Host != nil {
					got = append(got, e.Host.Links...)
				}
			}
			want := []model.Link{{Name: "eth0", Index: 2}, {Name: "eth0", Index: 7}}
			if !asked {
				want = nil
			}
			if !slices.Equal(got, want) {
				t.Errorf("asked %v: %+v", asked, *events)
			}
		})
	}
}

// What the subscription misses, the periodic list finds.
func TestRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLinks{}
		events := run(t, f)
		f.set(nil, "192.0.2.9/24")
		later(31 * time.Second)
		if n := len(*events); n != 3 || len((*events)[2].Host.Addrs) != 1 {
			t.Errorf("got %+v", *events)
		}
	})
}

// A lost subscription is opened again; other errors are also a Problem, which
// goes when they go.
func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLinks{openErr: errors.New("no sockets left")}
		events := run(t, f)
		if len(*events) != 1 || len((*events)[0].Problems) != 1 || (*events)[0].Origin == "" {
			t.Fatalf("got %+v", *events)
		}
		f.mu.Lock()
		f.openErr = nil
		f.mu.Unlock()
		later(2 * retry)
		if n := len(*events); n != 4 || (*events)[1].Origin != origin || (*events)[1].Problems != nil || (*events)[3].Synced != Name {
			t.Fatalf("got %+v", *events)
		}
		f.set(link.ErrLost)
		f.changed <- struct{}{}
		later(retry / 2)
		f.set(nil, "192.0.2.1/24")
		later(retry)
		if n := len(*events); n != 5 || (*events)[4].Host == nil || f.opened != 2 {
			t.Errorf("opened %d; got %+v", f.opened, *events)
		}
	})
}
