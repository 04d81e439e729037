package ipvs

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/model"
)

const clock = time.Minute // of the comparisons in these tests

// reading is a Kernel of which each reading begins with something else, or fails.
type reading struct {
	ipvs.Kernel
	mu     sync.Mutex
	spoil  int    // how many of the next readings begin with write
	write  func() // a write of the Driver
	cannot error  // why it cannot be read
}

func (r *reading) All(ctx context.Context, want ipvs.Wanted, take func(*ipvs.Virtual, []ipvs.Real) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spoil > 0 {
		r.spoil--
		r.write()
	}
	if r.cannot != nil {
		return r.cannot
	}
	return r.Kernel.All(ctx, want, take)
}

// set stores both values and returns how many readings were still to be spoilt.
func (r *reading) set(spoil int, cannot error) (left int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left, r.spoil, r.cannot = r.spoil, spoil, cannot
	return left
}

// watched runs a test with a driver that watches; rung counts the alarms by the clock.
func watched(t *testing.T, test func(t *testing.T, w *world, beside *reading, rung func() int)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Params{Audit: clock})
		beside := &reading{Kernel: w.ipvs}
		w.d.p.Beside = Sockets{w.rules, beside, w.ipvs}
		w.Want(dataplanetest.Service(0), dataplanetest.ClusterIP(model.IPv4, 0, 2))
		w.Sync(t)
		alarms := make(chan struct{}, 100)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.d.Watch(ctx, func() { alarms <- struct{}{} }) }()
		synctest.Wait()
		rung := func() (n int) {
			synctest.Wait()
			for len(alarms) > 0 {
				<-alarms
				n++
			}
			return n
		}
		rung() // that of its beginning
		test(t, w, beside, rung)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func meddle(t *testing.T, w *world) {
	t.Helper()
	f := dataplanetest.ClusterIP(model.IPv4, 0, 2)
	of := ipvs.VirtualKey{Addr: f.Key.Addr, Protocol: uint8(f.Key.Protocol), Port: f.Key.Port}
	if err := w.ipvs.PutReal(t.Context(), of, ipvs.Real{At: netip.MustParseAddrPort("203.0.113.9:99"), Weight: 1}); err != nil {
		t.Fatal(err)
	}
}

// TestWatchReadsBeside: the engine is not called, and its socket not used, while no other program changes IPVS.
func TestWatchReadsBeside(t *testing.T) {
	watched(t, func(t *testing.T, w *world, _ *reading, rung func() int) {
		before, _ := w.count.Counts()
		time.Sleep(5*clock + time.Second) // synctest's clock, no real time: five comparisons come due
		if n := rung(); n != 0 {
			t.Errorf("rung %d times while nothing happens", n)
		}
		if after, _ := w.count.Counts(); after != before {
			t.Errorf("IPVS is read %d times by the engine's socket", after-before)
		}
		meddle(t, w)
		time.Sleep(clock) // synctest's clock, no real time: the next comparison comes due
		if n := rung(); n != 1 {
			t.Errorf("rung %d times when somebody has meddled, want once", n)
		}
		if changed, err := w.d.Changed(t.Context()); !changed || err != nil {
			t.Errorf("the engine learns %v, %v", changed, err)
		}
	})
}

// TestWatchBesideWrites: a reading that a concurrent write of the Driver has invalidated is retried and raises no alarm. If the state cannot
// be determined at all, the engine has to find out.
func TestWatchBesideWrites(t *testing.T) {
	watched(t, func(t *testing.T, w *world, beside *reading, rung func() int) {
		n := 1
		beside.write = func() {
			n++
			w.Want(dataplanetest.Service(0), dataplanetest.ClusterIP(model.IPv4, 0, n%5+1))
			w.Sync(t)
		}
		beside.set(1, nil)
		time.Sleep(clock + straying*strayPause) // synctest's clock, no real time: a comparison and all its repetitions come due
		if n, left := rung(), beside.set(1000, nil); n != 0 || left > 0 {
			t.Errorf("rung %d times for a write of ours; %d readings are still to be spoilt", n, left)
		}
		time.Sleep(clock) // synctest's clock, no real time: the next comparison comes due
		if n := rung(); n != 1 {
			t.Errorf("rung %d times where writes never end, want once", n)
		}
		beside.set(0, errors.New("no memory, says the test"))
		time.Sleep(clock) // synctest's clock, no real time: the next comparison comes due
		if n := rung(); n != 1 {
			t.Errorf("rung %d times where IPVS cannot be read, want once", n)
		}
	})
}

// TestWatchDuringWrite: what is read while one write is under way the whole time is not compared, for it may be half of a batch. Once the
// write has ended, IPVS is read again.
func TestWatchDuringWrite(t *testing.T) {
	watched(t, func(t *testing.T, w *world, _ *reading, rung func() int) {
		w.d.writes.Add(1) // as Apply does where it begins
		meddle(t, w)
		time.Sleep(clock + strayPause/2) // synctest's clock, no real time: a comparison comes due
		if n := rung(); n != 0 {
			t.Errorf("rung %d times during a write, want none", n)
		}
		w.d.writes.Add(1)      // as Apply does where it ends
		time.Sleep(strayPause) // synctest's clock, no real time: it is read again
		if n := rung(); n != 1 {
			t.Errorf("rung %d times for what is not as it was left, want once", n)
		}
	})
}

// TestSurveyNeedsSockets: it never borrows those of the engine.
func TestSurveyNeedsSockets(t *testing.T) {
	w := newWorld(t, Params{})
	if err := w.d.Survey(t.Context(), func(dataplane.Key, string) {}); !errors.Is(err, dataplane.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}

// TestElementsReadably: an audit names elements as people know them, foreign ones too.
func TestElementsReadably(t *testing.T) {
	d := New(Params{})
	vip := dataplanetest.ClusterIP(model.IPv4, 0, 1)
	key := string(vipKey(vip.Key))
	for want, k := range map[string]dataplane.Key{
		"element " + vip.Key.Addr.String() + " TCP 80 of ip fairlead-ipvs services":                            {Kind: kindService, Family: model.IPv4, ID: key},
		"element TCP 80 of ip fairlead-ipvs nodeports":                                                         {Kind: kindNodePort, Family: model.IPv4, ID: key[4:]},
		"element fd00::7 of ip6 fairlead-ipvs addresses":                                                       {Kind: kindAddressKnown, Family: model.IPv6, ID: "\xfd" + strings.Repeat("\x00", 14) + "\x07"},
		"element " + vip.Key.Addr.String() + " TCP 80 192.0.2.0 to 192.0.2.255 of ip fairlead-ipvs fw-allowed": {Kind: kindAllowed, Family: model.IPv4, ID: key + "\xc0\x00\x02\x00" + key + "\xc0\x00\x02\xff"},
		"element 010203 of ip fairlead-ipvs services":                                                          {Kind: kindService, Family: model.IPv4, ID: "\x01\x02\x03"},
	} {
		if got := d.KeyString(k); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
