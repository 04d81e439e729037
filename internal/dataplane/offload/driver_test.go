package offload

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/dataplane/nftables"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// base are the rows of a table without Services; of IPv4 the node has two addresses.
func base(family string, members, ports, ips int) []string {
	t := family + " fairlead-offload"
	return []string{
		t + " kube-proxy-flowtable: devices [eth0 veth1], counter true", t + " rule default", t + " rule default", t + " rule default",
		t + " rule hand-over", t + " rule hand-over", t + " rule hand-over", t + " rule hand-over", t + " rule hand-over", t + " excluded: 0 of 0",
		fmt.Sprintf("%s services: %d of 65536", t, members), fmt.Sprintf("%s nodeports: %d of 16384", t, ports), fmt.Sprintf("%s node-ips: %d of 1024", t, ips),
	}
}

func TestBuildRestartAndOff(t *testing.T) {
	onBoth(t, func(w *world) {
		udp := with(plain(2), func(f *model.Frontend) { f.Key.Protocol = model.UDP })
		services := []model.Frontend{plain(1), udp, nodePort(3),
			with(plain(4), func(f *model.Frontend) { f.Key.Protocol = model.SCTP }),
			with(plain(5), func(f *model.Frontend) { f.Key.LastPort = 90 }),
			with(plain(6), func(f *model.Frontend) { f.Offload = -1 }),
			dataplanetest.ClusterIP(model.IPv4, 7, 0),
		}
		d := w.driver(nil)
		if _, n := w.start(d, services...); n == 0 || d.Status().Why != "" || d.Status().Devices != 2 {
			w.Fatalf("%d operations, %+v", n, d.Status())
		}
		built := append(base("ip", 2, 1, 2), base("ip6", 0, 0, 1)...)
		w.want(built...)

		before, _ := w.k.Generation(w.Context())
		again := w.driver(nil)
		probed, _ := w.k.Generation(w.Context())
		if _, n := w.start(again, services...); n != 0 || again.Status().Why != "" {
			w.Errorf("a restart writes %d operations, %+v", n, again.Status())
		}
		if now, _ := w.k.Generation(w.Context()); now != probed {
			w.Errorf("a restart made %d transactions beside the %d of the probe", now-probed, probed-before)
		}
		w.want(built...)

		if _, n := w.start(w.driver(func(p *Params) { p.Threshold = 50 }), services...); n != 2 {
			w.Errorf("another threshold writes %d operations, want the rules of two families", n)
		}
		w.want(built...)

		off := w.driver(func(p *Params) { p.Threshold = 0 })
		w.start(off, services...)
		w.want()
		if tables, err := w.k.Tables(w.Context()); err != nil || len(tables) != 2 {
			w.Errorf("%v: %+v, want the main tables alone", err, tables)
		}
		if _, n := w.start(w.driver(func(p *Params) { p.Threshold = 0 }), services...); n != 0 {
			w.Errorf("off already, and %d operations", n)
		}
	})
}

// A Service may have a threshold of its own, and leaves no trace of it.
func TestOwnThreshold(t *testing.T) {
	onBoth(t, func(w *world) {
		b, _ := w.start(w.driver(nil), plain(1))
		b.Want(dataplanetest.Service(1), with(plain(1), func(f *model.Frontend) { f.Offload = 4 }))
		b.Sync(w)
		own := append(base("ip", 0, 0, 2), base("ip6", 0, 0, 1)...)
		w.want(append(own, "ip fairlead-offload rule 4", "ip fairlead-offload rule 4", "ip fairlead-offload rule 4",
			"ip fairlead-offload services-4: 1 of 4096", "ip fairlead-offload nodeports-4: 0 of 4096")...)
		b.Want(dataplanetest.Service(1))
		b.Sync(w)
		w.want(own...)
	})
}

// Drift of the table, caused by another program, is repaired.
func TestDriftHeals(t *testing.T) {
	set := func(name string) nft.SetRef { return tableRef(model.IPv4).Set(name) }
	edits := map[string]func(w *world, b *nft.Batch){
		"an element less": func(_ *world, b *nft.Batch) { b.FlushSet(set(services)) },
		"an element more": func(_ *world, b *nft.Batch) {
			b.AddElement(set(nodePorts), &nft.Element{Key: nft.AppendPort(nft.AppendProto(nil, 6), 9)})
		},
		"a rule more": func(_ *world, b *nft.Batch) {
			b.NewRule(nft.RuleSpec{Chain: tableRef(model.IPv4).Chain(chainName), Exprs: []nft.Expr{nft.CountPackets()}})
		},
		"no rules":         func(_ *world, b *nft.Batch) { b.FlushChain(tableRef(model.IPv4).Chain(chainName)) },
		"no table":         func(_ *world, b *nft.Batch) { b.DelTable(tableRef(model.IPv4)) },
		"no tables":        func(_ *world, b *nft.Batch) { b.DelTable(tableRef(model.IPv4)); b.DelTable(tableRef(model.IPv6)) },
		"a chain more":     func(_ *world, b *nft.Batch) { b.NewChain(nft.ChainSpec{Ref: tableRef(model.IPv4).Chain("x")}) },
		"a set more":       func(_ *world, b *nft.Batch) { b.NewSet(nft.SetSpec{Ref: set("x"), Key: []nft.Part{nft.Port}}) },
		"a threshold more": func(_ *world, b *nft.Batch) { s, _ := setSpec(model.IPv4, "services-7"); b.NewSet(s) },
		"no counter": func(_ *world, b *nft.Batch) {
			b.NewFlowtable(nft.Flowtable{Ref: flowRef(model.IPv4), Devices: []string{"eth0"}})
		},
		"a device less": func(_ *world, b *nft.Batch) { b.DelFlowtable(flowRef(model.IPv4), "eth0") },
	}
	onBoth(t, func(w *world) {
		d := w.driver(nil)
		b, _ := w.start(d, plain(1), nodePort(3))
		good := append(base("ip", 1, 1, 2), base("ip6", 0, 0, 1)...)
		w.want(good...)
		for _, name := range slices.Sorted(maps.Keys(edits)) {
			w.Log(name)
			var batch nft.Batch
			edits[name](w, &batch)
			if _, err := w.other.Commit(w.Context(), &batch); err != nil {
				w.Fatal(err)
			}
			if changed, err := d.Changed(w.Context()); !changed || err != nil {
				w.Errorf("nobody is told: %v, %v", changed, err)
			}
			b.Load(w)
			b.Sync(w)
			w.want(good...)
			b.Load(w)
			if n := len(b.Pending()); n != 0 {
				w.Errorf("%d differences are left", n)
			}
		}
	})
}

// A device that has gone costs nothing, and one of the same name later is another one.
func TestDevices(t *testing.T) {
	onBoth(t, func(w *world) {
		b := w.bed(w.driver(nil))
		b.View.Links = append(b.View.Links, model.Link{Name: "gone0", Index: 9999})
		b.Load(w)
		b.Base()
		b.Want(dataplanetest.Service(1), plain(1))
		b.Sync(w)
		b.Want(dataplanetest.Service(2), plain(2))
		b.Sync(w)
		good := append(base("ip", 2, 0, 2), base("ip6", 0, 0, 1)...)
		w.want(good...)

		w.recreate("eth0")
		b.View.Links, _ = w.links()
		b.Base()
		b.Sync(w)
		w.want(good...)

		anew := 0
		w.faulty.OnCommit = func(b *nft.Batch) nft.Fault { anew += b.Count(nft.OpDelFlowtable); return nft.Fault{} }
		for i := range b.View.Links { // connections on the fast path know the MTU of before
			if b.View.Links[i].Name == "eth0" {
				b.View.Links[i].MTU = 1300
			}
		}
		b.Base()
		b.Sync(w)
		w.want(good...)
		if w.faulty.OnCommit = nil; anew != 2 {
			w.Errorf("with another MTU %d flowtables are made anew, want that of each family", anew)
		}

		if (&Params{Include: []string{"*"}}).takes("lo") {
			w.Error("lo is in the flowtable, though what goes through it is not forwarded")
		}
		d := w.driver(func(p *Params) { p.Include = []string{"eth*", "veth*"}; p.Exclude = []string{"veth?"} })
		w.start(d, plain(1), plain(2))
		for _, f := range families() {
			if got, err := d.s.devices(w.Context(), f); err != nil || len(got) != 1 {
				w.Errorf("%v: %v", got, err)
			}
		}
	})
}

// A kernel that refuses the acceleration costs the Services nothing.
func TestRefused(t *testing.T) {
	onModel(t, func(w *world) {
		now := time.Unix(1e9, 0)
		d := w.driver(func(p *Params) { p.Now = func() time.Time { return now } })
		refuse := func(b *nft.Batch) nft.Fault {
			if b.Count(nft.OpNewFlowtable) > 0 {
				return nft.Fault{Err: &nft.BatchError{Errno: unix.ENOMEM}}
			}
			return nft.Fault{}
		}
		w.faulty.OnCommit = refuse
		b, _ := w.start(d, plain(1))
		w.want()
		if st := d.Status(); !strings.HasPrefix(st.Why, "write: ") || st.Refused["kernel"] == 0 {
			w.Errorf("%+v", st)
		}
		if changed, err := d.Changed(w.Context()); changed || err != nil {
			w.Errorf("tried again at once: %v, %v", changed, err)
		}
		w.faulty.OnCommit = nil
		now = now.Add(time.Hour)
		if changed, err := d.Changed(w.Context()); !changed || err != nil {
			w.Errorf("never tried again: %v, %v", changed, err)
		}
		b.Load(w)
		b.Sync(w)
		w.want(append(base("ip", 1, 0, 2), base("ip6", 0, 0, 1)...)...)
		if st := d.Status(); st.Why != "" {
			w.Errorf("all is well again, and it says %q", st.Why)
		}
	})
}

// Without flowtables there is a note, and nothing else.
func TestKernelWithout(t *testing.T) {
	k := nft.NewFake()
	w := &world{T: t, k: k, reader: k, other: k.Neighbour(), fake: k, faulty: &nft.Faulty{Kernel: k}}
	w.faulty.OnCommit = func(b *nft.Batch) nft.Fault {
		if b.Count(nft.OpNewFlowtable) > 0 {
			return nft.Fault{Err: &nft.BatchError{Errno: unix.EOPNOTSUPP}}
		}
		return nft.Fault{}
	}
	d := New(nftables.New(nftables.Params{Kernel: w.faulty}), Params{Kernel: w.faulty, Flowtables: k.Flowtables, Threshold: 20, Links: w.links})
	caps, err := d.Probe(t.Context())
	if err != nil || len(caps.Notes) == 0 || !strings.Contains(caps.Notes[len(caps.Notes)-1], "not accelerated: the kernel rejects a flowtable") {
		t.Fatalf("%v: %q", err, caps.Notes)
	}
	b, _ := w.start(d, plain(1))
	w.want()
	if st := d.Status(); st.Threshold != 0 || st.Why == "" {
		t.Errorf("%+v", st)
	}
	b.Load(t)
	if n := len(b.Pending()); n != 0 {
		t.Errorf("%d differences are left", n)
	}
}

// A set that is full leaves out what does not fit, and nothing else.
func TestFull(t *testing.T) {
	k := nft.NewFake()
	w := &world{T: t, k: k, reader: k, other: k.Neighbour(), fake: k, faulty: &nft.Faulty{Kernel: k}}
	w.setDevices("eth0", "veth1")
	d := w.driver(nil)
	b, _ := w.start(d)
	own := func(i int) model.Frontend { return with(plain(i), func(f *model.Frontend) { f.Offload = 4 }) }
	for i := range maxOwn + 2 {
		b.Want(dataplanetest.Service(i), own(i))
	}
	b.Sync(t)
	if st := d.Status(); st.Refused["full"] != 2 || st.Why != "" {
		t.Errorf("%+v", st)
	}
	for i := range maxOwn + 2 {
		b.Want(dataplanetest.Service(i))
	}
	b.Sync(t)
	w.want(append(base("ip", 0, 0, 2), base("ip6", 0, 0, 1)...)...)
	b.Want(dataplanetest.Service(1), own(1)) // there is room again
	b.Sync(t)
	if st := d.Status(); st.Refused["full"] != 2 {
		t.Errorf("full with one Service: %+v", st)
	}
}

// A foreign table of the same name is not changed, and the Services are served.
func TestNotOurs(t *testing.T) {
	onModel(t, func(w *world) {
		var b nft.Batch
		b.NewTable(tableRef(model.IPv4), nft.Comment("mine"))
		if _, err := w.other.Commit(w.Context(), &b); err != nil {
			w.Fatal(err)
		}
		d := w.driver(nil)
		bed := w.bed(d)
		bed.Load(w)
		if why := d.Status().Why; !strings.Contains(why, "belongs to another program") {
			w.Errorf("why: %q", why)
		}
		if err := Remove(w.Context(), w.k); err != nil {
			w.Fatal(err)
		}
		tables, err := w.k.Tables(w.Context())
		if err != nil || len(tables) != 1 {
			w.Errorf("%v: %+v", err, tables)
		}
	})
}

func TestRemove(t *testing.T) {
	onModel(t, func(w *world) {
		w.start(w.driver(nil), plain(1))
		for range 2 {
			if err := Remove(w.Context(), w.k); err != nil {
				w.Fatal(err)
			}
		}
		w.want()
	})
}

// ReadCounts returns the counters of both families together; a failed read is an error.
func TestCounts(t *testing.T) {
	onModel(t, func(w *world) {
		w.start(w.driver(nil), plain(1))
		if c, err := ReadCounts(t.Context(), w.k); c != (Counts{}) || err != nil {
			t.Errorf("%+v, %v", c, err)
		}
		failing := errors.New("no answer")
		if _, err := ReadCounts(t.Context(), &nft.Faulty{Kernel: w.k, OnRead: func(string) error { return failing }}); !errors.Is(err, failing) {
			t.Errorf("%v", err)
		}
	})
}

// The excluded addresses are a set; when they change, the flowtable is rebuilt and keeps its devices.
func TestExcluded(t *testing.T) {
	onBoth(t, func(w *world) {
		d := w.driver(nil)
		b, _ := w.start(d, plain(1))
		handle := func() uint64 {
			w.Helper()
			list, err := w.k.Flowtables(w.Context(), tableRef(model.IPv4))
			if err != nil || len(list) != 1 {
				w.Fatalf("%v: %v", list, err)
			}
			return list[0].Handle
		}
		rows := func(v4, v6 int) {
			w.Helper()
			all := append(base("ip", 1, 0, 2), base("ip6", 0, 0, 1)...)
			for i, n := range []int{v4, v6} {
				at := slices.Index(all, []string{"ip", "ip6"}[i]+" fairlead-offload excluded: 0 of 0")
				all[at] = fmt.Sprintf("%s fairlead-offload excluded: %d of 0", []string{"ip", "ip6"}[i], n)
			}
			w.want(all...)
		}
		exclude := func(list ...string) int {
			w.Helper()
			b.View.Unaccelerated = nil
			for _, p := range list {
				b.View.Unaccelerated = append(b.View.Unaccelerated, netip.MustParsePrefix(p))
			}
			b.Base()
			return b.Sync(w).Operations
		}
		first := handle()
		// Two that touch are one range; the last address of all has no end.
		exclude("10.0.0.0/25", "10.0.0.128/25", "10.9.0.1/32", "255.255.255.254/31", "fd00::/64")
		rows(5, 2)
		if second := handle(); w.fake == nil && second == first {
			w.Error("the flowtable is the same: connections of those who are excluded now stay in it")
		}
		if _, n := w.restartWith(b.View, plain(1)); n != 0 {
			w.Errorf("a restart writes %d operations", n)
		}
		var batch nft.Batch
		batch.DelElement(tableRef(model.IPv4).Set(excluded), &nft.Element{Key: nft.AppendAddr(nil, netip.MustParseAddr("10.9.0.1"))})
		if _, err := w.other.Commit(w.Context(), &batch); err != nil {
			w.Fatal(err)
		}
		b.Load(w)
		b.Sync(w)
		rows(5, 2)
		exclude("0.0.0.0/0")
		rows(1, 0)
		exclude()
		rows(0, 0)
		if n := exclude(); n != 0 {
			w.Errorf("nothing has changed, and %d operations", n)
		}
	})
}

func TestFault(t *testing.T) {
	for release, want := range map[string][2]bool{
		"6.19.0-1-amd64": {true, true}, "6.19": {true, true}, "6.19-rc3": {true, true}, "6.190.1": {false, true}, "6.20.3": {false, true}, "7.0.0": {false, true},
		"6.1.0-56": {}, "6.12.117": {}, "6.18.5-fc": {}, "5.15": {}, "": {}, "unknown": {},
	} {
		if fault, doubt := Fault(release) != "", Suspicion(release) != ""; fault != want[0] || doubt != want[1] {
			t.Errorf("%q: fault %v, suspicion %v, want %v", release, fault, doubt, want)
		}
	}
}

// The pair of both is a data plane like any other.
func TestSuiteOnModel(t *testing.T) {
	dataplanetest.Run(t, func(t *testing.T) *dataplanetest.Subject {
		k := nft.NewFake()
		w := &world{T: t, k: k, reader: k, other: k.Neighbour(), fake: k, faulty: &nft.Faulty{Kernel: k}}
		w.setDevices("eth0", "veth1")
		touch := func(t testing.TB, table string) {
			t.Helper()
			var b nft.Batch
			ref := nft.TableRef{Family: nft.IPv4, Name: table}
			b.NewTable(ref, nil)
			b.NewSet(nft.SetSpec{Ref: ref.Set(fmt.Sprintf("x%d", time.Now().UnixNano())), Key: []nft.Part{nft.Port}})
			if _, err := w.other.Commit(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
		s := &dataplanetest.Subject{
			Driver: w.driver(nil),
			Restart: func() dataplane.Driver { // unprobed, for that would write
				d := w.made(&nft.Faulty{Kernel: k}, nil)
				d.s.served = []model.Family{model.IPv4, model.IPv6}
				return d
			},
			Families: []model.Family{model.IPv4, model.IPv6}, TellsApart: true,
			Edits: []dataplanetest.Edit{{Name: "our table deleted", Do: func(t testing.TB) {
				var b nft.Batch
				b.DelTable(tableRef(model.IPv4))
				if _, err := w.other.Commit(t.Context(), &b); err != nil {
					t.Fatal(err)
				}
			}}},
			Touch:   func(t testing.TB) { touch(t, "neighbour") },
			Meddle:  func(t testing.TB) { touch(t, tableName) },
			Poison:  func(model.Family) *model.Frontend { return nil },
			Lingers: func(name string) bool { return strings.HasPrefix(name, "chain ") },
		}
		first := w.faulty
		s.FailApply = func(after bool) {
			first.OnCommit = func(*nft.Batch) nft.Fault {
				first.OnCommit = nil
				if after {
					return nft.Fault{Err: nft.ErrNoAnswer, After: true}
				}
				return nft.Fault{Err: errors.New("no buffer space, says the test")}
			}
		}
		s.InterruptLoad = func() {
			first.OnRead = func(method string) error {
				if method == "Elements" {
					first.OnRead = nil
					touch(t, "neighbour")
				}
				return nil
			}
		}
		return s
	})
}
