package ipvs

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// world is a driver on a model of the kernel.
type world struct {
	*dataplanetest.Bed
	rules *nft.Fake
	ipvs  *ipvs.Fake
	count *ipvs.Counter
	d     *Driver
}

func newWorld(t *testing.T, p Params) *world {
	t.Helper()
	w := &world{rules: nft.NewFake(), ipvs: ipvs.NewFake()}
	w.count = ipvs.NewCounter(w.ipvs)
	p.NFT, p.IPVS, p.Addresses = w.rules, w.count, w.ipvs
	w.d = New(p)
	w.Bed = dataplanetest.NewBed(w.d, dataplanetest.View())
	w.Load(t)
	w.Base()
	w.Sync(t)
	return w
}

// weights are those of the real servers of one virtual server, by their last byte.
func (w *world) weights(t *testing.T, f model.Frontend) map[byte]uint32 {
	t.Helper()
	reals, err := w.ipvs.Reals(t.Context(), ipvs.VirtualKey{Addr: f.Key.Addr, Protocol: uint8(f.Key.Protocol), Port: f.Key.Port})
	if err != nil {
		t.Fatal(err)
	}
	out := map[byte]uint32{}
	for _, r := range reals {
		b := r.At.Addr().AsSlice()
		out[b[len(b)-1]] = r.Weight
	}
	return out
}

func (w *world) wants(t *testing.T, f model.Frontend, want map[byte]uint32) {
	t.Helper()
	got := w.weights(t, f)
	if len(got) != len(want) {
		t.Errorf("weights %v, want %v", got, want)
		return
	}
	for k, v := range want {
		if have, there := got[k]; !there || have != v {
			t.Errorf("weights %v, want %v", got, want)
			return
		}
	}
}

// TestDrain: a removed endpoint gets no new connection from the next moment on. One of TCP keeps those it has until the
// grace is over, one of UDP is gone unless it is ending and still serves.
func TestDrain(t *testing.T) {
	w := newWorld(t, Params{Drain: time.Minute})
	tcp := dataplanetest.ClusterIP(model.IPv4, 0, 3)
	udp := dataplanetest.ClusterIP(model.IPv4, 1, 3)
	udp.Key.Protocol = model.UDP
	w.Want(tcp.Service, tcp)
	w.Want(udp.Service, udp)
	w.Sync(t)
	w.wants(t, tcp, map[byte]uint32{0: 1, 1: 1, 2: 1})
	gone := udp.Backends[0]
	tcp.Backends, udp.Backends = tcp.Backends[1:], udp.Backends[1:]
	w.Want(tcp.Service, tcp)
	udp.Others = []model.Other{{Addr: gone.AddrPort(), Serving: true}}
	w.Want(udp.Service, udp)
	w.Sync(t)
	w.wants(t, tcp, map[byte]uint32{0: 0, 1: 1, 2: 1})
	w.wants(t, udp, map[byte]uint32{16: 0, 17: 1, 18: 1})
	udp.Others = nil
	w.Want(udp.Service, udp)
	w.Sync(t)
	w.wants(t, udp, map[byte]uint32{17: 1, 18: 1})
	w.Now = w.Now.Add(59 * time.Second)
	w.Track.Expire(w.Now)
	w.Sync(t)
	w.wants(t, tcp, map[byte]uint32{0: 0, 1: 1, 2: 1})
	w.Now = w.Now.Add(time.Second)
	w.Track.Expire(w.Now)
	w.Sync(t)
	w.wants(t, tcp, map[byte]uint32{1: 1, 2: 1})
}

// TestEndGone: with --reset-gone-endpoints an endpoint of TCP keeps its connections only while it is there and still serves.
func TestEndGone(t *testing.T) {
	w := newWorld(t, Params{Drain: time.Minute, EndGone: true})
	f := dataplanetest.ClusterIP(model.IPv4, 0, 3)
	w.Want(f.Service, f)
	w.Sync(t)
	going := f.Backends[0]
	f.Backends, f.Others = f.Backends[1:], []model.Other{{Addr: going.AddrPort(), Serving: true}}
	w.Want(f.Service, f)
	w.Sync(t)
	w.wants(t, f, map[byte]uint32{0: 0, 1: 1, 2: 1})
	f.Others = nil
	w.Want(f.Service, f)
	w.Sync(t)
	w.wants(t, f, map[byte]uint32{1: 1, 2: 1})
}

// TestDrained: what lingers is done with when its last connection has ended, each endpoint by itself, and a virtual server with
// the last of them. What still gets connections is not.
func TestDrained(t *testing.T) {
	w := newWorld(t, Params{Drain: time.Hour})
	f := dataplanetest.ClusterIP(model.IPv6, 0, 3)
	w.Want(f.Service, f)
	w.Sync(t)
	key := ipvs.VirtualKey{Addr: f.Key.Addr, Protocol: 6, Port: 80}
	a, b := f.Backends[0].AddrPort(), f.Backends[1].AddrPort()
	w.ipvs.Connect(key, a, 1, 0)
	w.ipvs.Connect(key, b, 0, 1)
	release := func(want int, weights map[byte]uint32) {
		t.Helper()
		done, err := w.d.Drained(t.Context(), slices.Collect(w.Track.Lingering()))
		if err != nil || len(done) != want {
			t.Errorf("%d of %d objects are done with, want %d (%v)", len(done), len(slices.Collect(w.Track.Lingering())), want, err)
		}
		for _, k := range done {
			w.Track.Release(k)
		}
		w.Sync(t)
		w.wants(t, f, weights)
	}
	all := f.Backends
	f.Backends = all[2:]
	w.Want(f.Service, f)
	w.Sync(t)
	release(0, map[byte]uint32{0: 0, 1: 0, 2: 1})
	w.ipvs.Connect(key, b, 0, 0)
	release(1, map[byte]uint32{0: 0, 2: 1})
	w.Want(f.Service)
	w.Sync(t)
	release(1, map[byte]uint32{0: 0}) // the third, which never had a connection
	w.ipvs.Connect(key, a, 0, 0)
	release(3, map[byte]uint32{}) // the first, the virtual server, and our account of it
	if list, err := ipvs.List(t.Context(), w.ipvs, ipvs.Wanted{}); err != nil || len(list) > 0 {
		t.Errorf("virtual servers %v, %v", list, err)
	}
}

// TestOneChangeCostsOneWrite: whatever else there is.
func TestOneChangeCostsOneWrite(t *testing.T) {
	w := newWorld(t, Params{Drain: time.Minute})
	w.WantAll(dataplanetest.Catalogue([]model.Family{model.IPv4, model.IPv6}))
	w.Sync(t)
	f := dataplanetest.ClusterIP(model.IPv4, 0, 1) // as in the catalogue
	reads, writes := w.count.Counts()
	f.Backends = append(f.Backends, dataplanetest.Backends(model.IPv4, 200, 1)...)
	w.Want(f.Service, f, dataplanetest.Every(model.IPv6)[0])
	w.Sync(t)
	if r, n := w.count.Counts(); r != reads || n-writes != 2 { // the real server, and its weight
		t.Errorf("%d reads and %d writes", r-reads, n-writes)
	}
}

// TestForeignServersStay: a virtual server at another program's address is not owned, nor is an excluded one.
func TestForeignServersStay(t *testing.T) {
	excluded := netip.MustParsePrefix("10.96.0.0/24")
	w := newWorld(t, Params{Exclude: []netip.Prefix{excluded}})
	f := dataplanetest.ClusterIP(model.IPv4, 0, 1)
	w.Want(f.Service, f)
	w.Sync(t)
	theirs := []ipvs.VirtualKey{{Addr: netip.MustParseAddr("203.0.113.1"), Protocol: 6, Port: 80}, {Addr: f.Key.Addr, Protocol: 6, Port: 4321}}
	for _, k := range theirs {
		if err := w.ipvs.PutVirtual(t.Context(), ipvs.Virtual{VirtualKey: k, Scheduler: "rr"}); err != nil {
			t.Fatal(err)
		}
	}
	if drift := w.Load(t); len(drift) > 0 {
		t.Errorf("foreign virtual servers are taken for ours: %v", drift)
	}
	if err := w.d.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := ipvs.List(t.Context(), w.ipvs, ipvs.Wanted{})
	if err != nil || len(list) != len(theirs) {
		t.Errorf("after clean-up %v, %v", list, err)
	}
}

// TestSchedulers: the scheduler of the Service has precedence over that of the configuration.
func TestSchedulers(t *testing.T) {
	for _, c := range []struct {
		name, told string
		change     func(*model.Frontend)
		want       ipvs.Virtual
	}{
		{"plain", "", func(*model.Frontend) {}, ipvs.Virtual{Scheduler: "rr"}},
		{"told", "sh", func(*model.Frontend) {}, ipvs.Virtual{Scheduler: "sh"}},
		{"weights", "", func(f *model.Frontend) { f.Backends[0].Weight = 3 }, ipvs.Virtual{Scheduler: "wrr"}},
		{"weights of least connections", "lc", func(f *model.Frontend) { f.Backends[0].Weight = 3 }, ipvs.Virtual{Scheduler: "wlc"}},
		{"asked for", "rr", func(f *model.Frontend) { f.IPVSScheduler = "sed" }, ipvs.Virtual{Scheduler: "sed"}},
		{"asked for, with weights", "sh", func(f *model.Frontend) { f.IPVSScheduler, f.Backends[0].Weight = "lc", 3 }, ipvs.Virtual{Scheduler: "wlc"}},
		{"maglev", "mh", func(*model.Frontend) {}, ipvs.Virtual{Scheduler: "mh", Flags: ipvs.Sched2}},
		{"consistent hash", "", func(f *model.Frontend) { f.ConsistentHash = true }, ipvs.Virtual{Scheduler: "mh", Flags: ipvs.Sched1}},
		{"affinity", "", func(f *model.Frontend) { f.AffinityTimeout = time.Hour }, ipvs.Virtual{Scheduler: "rr", Flags: ipvs.Persistent, Timeout: time.Hour}},
		{"short affinity", "", func(f *model.Frontend) { f.AffinityTimeout = time.Millisecond }, ipvs.Virtual{Scheduler: "rr", Flags: ipvs.Persistent, Timeout: time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Params{Scheduler: c.told})
			f := dataplanetest.ClusterIP(model.IPv4, 0, 2)
			c.change(&f)
			w.Want(f.Service, f)
			w.Sync(t)
			list, err := ipvs.List(t.Context(), w.ipvs, ipvs.Wanted{})
			c.want.VirtualKey = ipvs.VirtualKey{Addr: f.Key.Addr, Protocol: 6, Port: 80}
			if err != nil || !slices.Equal(list, []ipvs.Virtual{c.want}) {
				t.Errorf("%+v, %v; want %+v", list, err, c.want)
			}
		})
	}
}

// TestRangeOfPorts: it is not served, with a word about what to do, and what the Service has besides is.
func TestRangeOfPorts(t *testing.T) {
	w := newWorld(t, Params{})
	f := dataplanetest.ClusterIP(model.IPv4, 0, 2)
	wide := f
	wide.Key.LastPort = wide.Key.Port + 9
	w.Want(f.Service, wide, f)
	w.Sync(t)
	list, err := ipvs.List(t.Context(), w.ipvs, ipvs.Wanted{})
	if err != nil || len(list) != 1 || list[0].Port != f.Key.Port {
		t.Errorf("virtual servers: %+v, %v", list, err)
	}
	caps, err := w.Driver.Probe(t.Context())
	if err != nil || caps.Unsupported(&f) != "" || !strings.Contains(caps.Unsupported(&wide), "--proxy-mode nftables or iptables") {
		t.Errorf("unsupported: %q, and of a range %q, %v", caps.Unsupported(&f), caps.Unsupported(&wide), err)
	}
}

// TestRetire: another mode has taken over: no weight is left, the rules for Services are gone, and the next agent of this
// mode puts all of it back.
func TestRetire(t *testing.T) {
	w := newWorld(t, Params{})
	f := dataplanetest.ClusterIP(model.IPv4, 0, 2)
	w.Want(f.Service, f)
	w.Sync(t)
	for range 2 {
		other := New(Params{NFT: w.rules.Neighbour(), IPVS: w.ipvs, Addresses: w.ipvs})
		if n, err := other.Retire(t.Context()); n != 0 || err != nil {
			t.Fatalf("retire: %d connections, %v", n, err)
		}
		w.wants(t, f, map[byte]uint32{0: 0, 1: 0})
	}
	w.Load(t)
	w.Sync(t)
	w.wants(t, f, map[byte]uint32{0: 1, 1: 1})
}

// TestUnknownSchedulerOfAService: what a Service asks for and the kernel lacks costs that Service alone.
func TestUnknownSchedulerOfAService(t *testing.T) {
	w := newWorld(t, Params{})
	f := dataplanetest.ClusterIP(model.IPv4, 0, 2)
	f.IPVSScheduler = "best"
	w.Want(f.Service, f)
	_, err := w.Apply(t.Context(), w.Pending())
	var invalid *dataplane.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Keys) != 1 || !strings.Contains(invalid.Error(), "scheduler best") {
		t.Errorf("scheduler best: %v", err)
	}
}

// TestUnknownSchedulerIsSaid: the agent does not start with a scheduler that the kernel lacks.
func TestUnknownSchedulerIsSaid(t *testing.T) {
	v := ipvs.NewFake()
	_, err := New(Params{NFT: nft.NewFake(), IPVS: v, Addresses: v, Scheduler: "best"}).Probe(context.Background())
	if !errors.Is(err, dataplane.ErrUnsupported) {
		t.Errorf("scheduler best: %v", err)
	}
}
