package nftables

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// sticky returns a Frontend with affinity and n endpoints.
func sticky(f model.Family, kind model.FrontendKind, n int) model.Frontend {
	fe := dataplanetest.ClusterIP(f, 1, n)
	fe.Kind, fe.AffinityTimeout = kind, time.Hour
	if kind == model.NodePort {
		fe.Key.Addr, fe.Key.Port = netip.Addr{}, 30080
	}
	return fe
}

// remember writes what packets would write: the clients of a Frontend with its endpoints, in turn.
func remember(t testing.TB, k nft.Kernel, fe *model.Frontend, clients int) {
	t.Helper()
	set := tableRef(fe.Key.Family).Set(memoryOf(fe).clients())
	key := make([]byte, addrLen(fe.Key.Family))
	key[0] = 172
	const each = 5_000
	for from := 0; from < clients; from += each {
		dataplanetest.Commit(t, k, func(batch *nft.Batch) {
			for i := from; i < min(from+each, clients); i++ {
				b := fe.Backends[i%len(fe.Backends)]
				binary.BigEndian.PutUint32(key[len(key)-4:], 0xf0000000+uint32(i))
				data := nft.AppendPort(nft.AppendAddr(nil, b.Addr), b.Port)
				batch.AddElement(set, &nft.Element{Key: key, Data: append(data, data...)})
			}
		})
	}
}

// rememberedBy returns the endpoints that the clients of a Frontend remember, sorted. The
// kernel resizes the hash table of such a map some time after many insertions, and a
// dump during that resize can miss elements or contain some twice. So the read is
// retried, within a bound, until it has the expected number of clients.
func rememberedBy(t testing.TB, k nft.Kernel, fe *model.Frontend, want int) []string {
	t.Helper()
	var clients map[string]string
	for try := 0; try < 200 && (try == 0 || len(clients) != want); try++ {
		if try > 0 {
			time.Sleep(10 * time.Millisecond) // bounded poll: the kernel does not report that a hash table has grown
		}
		clients = map[string]string{}
		err := k.Elements(t.Context(), tableRef(fe.Key.Family).Set(memoryOf(fe).clients()), func(e *nft.Element) error {
			clients[string(e.Key)] = string(e.Data)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return slices.Sorted(maps.Values(clients))
}

// stickyTown returns a bed with a sticky Frontend of 4 endpoints and 20 stored clients.
func stickyTown(t *testing.T, k nft.Kernel, f model.Family, kind model.FrontendKind) (*dataplanetest.Bed, model.Frontend) {
	t.Helper()
	b := dataplanetest.NewBed(New(Params{Kernel: k}), dataplanetest.View())
	b.Load(t)
	b.Base()
	fe := sticky(f, kind, 4)
	b.Want(fe.Service, fe)
	b.Sync(t)
	remember(t, k, &fe, 20)
	b.Load(t)
	return b, fe
}

// Removing an endpoint changes one element of the set of live endpoints and one slot,
// however many clients are stored with it, and reads nothing. Its clients' entries are
// kept until their next connection; the clients of other Frontends are not read.
func TestLeavingEndpointCostsOneElement(t *testing.T) {
	for _, kind := range []model.FrontendKind{model.ClusterIP, model.NodePort} {
		for _, f := range bothFamilies {
			t.Run(kind.String()+f.String(), func(t *testing.T) {
				counter := nft.NewCounter(nft.NewFake())
				b, fe := stickyTown(t, counter, f, kind)
				before := counter.Counts()
				fe.Backends = fe.Backends[:3]
				b.Want(fe.Service, fe)
				b.Sync(t)
				now := counter.Counts()
				if now.Reads != before.Reads || now.Commits != before.Commits+1 || now.Elements != before.Elements+2 {
					t.Errorf("%d reads, %d commits, %d elements", now.Reads-before.Reads, now.Commits-before.Commits, now.Elements-before.Elements)
				}
				if drift := b.Load(t); len(drift)+len(b.Pending()) > 0 {
					t.Errorf("%d objects differ, %d pending", len(drift), len(b.Pending()))
				}
			})
		}
	}
}

// liveEndpoints returns the endpoints that a client of the Frontend may use again.
func liveEndpoints(t testing.TB, k nft.Kernel, fe *model.Frontend, set string) []netip.AddrPort {
	t.Helper()
	var out []netip.AddrPort
	err := k.Elements(t.Context(), tableRef(fe.Key.Family).Set(set), func(e *nft.Element) error {
		n := addrLen(fe.Key.Family)
		a, _ := netip.AddrFromSlice(e.Key[:n])
		out = append(out, netip.AddrPortFrom(a, binary.BigEndian.Uint16(e.Key[n:])))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return out
}

// The set of live endpoints equals the Frontend's endpoints after any sequence of
// changes, and weights add no duplicates.
func TestLiveEndpointsFollow(t *testing.T) {
	kernels(t, func(t *testing.T, k nft.Kernel) {
		b, fe := stickyTown(t, k, model.IPv6, model.ExternalIP)
		all := dataplanetest.Backends(model.IPv6, 16, 12)
		all[1].Weight = 5
		for _, list := range [][]model.Backend{all, all[3:], all[2:9], all[8:10], all[:1], all[:11]} {
			fe.Backends = list
			fe.LocalOnly, fe.LocalVerdict, fe.LocalBackends = true, model.Forward, list[:1]
			b.Want(fe.Service, fe)
			b.Sync(t)
			for set, want := range map[string][]model.Backend{"live": fe.Backends, "local-live": fe.LocalBackends} {
				var addrs []netip.AddrPort
				for _, w := range want {
					addrs = append(addrs, w.AddrPort())
				}
				if got := liveEndpoints(t, k, &fe, set); !slices.Equal(got, addrs) {
					t.Errorf("%s has %v, want %v", set, got, addrs)
				}
			}
		}
		if drift := b.Load(t); len(drift)+len(b.Pending()) > 0 {
			t.Errorf("%d objects differ, %d pending", len(drift), len(b.Pending()))
		}
	})
}

// All addresses of a Service port share one map of clients; the next port has its own.
func TestOneMemoryPerServicePort(t *testing.T) {
	kernels(t, func(t *testing.T, k nft.Kernel) {
		b := dataplanetest.NewBed(New(Params{Kernel: k}), dataplanetest.View())
		b.Load(t)
		b.Base()
		list := []model.Frontend{sticky(model.IPv4, model.ClusterIP, 4), sticky(model.IPv4, model.NodePort, 4), sticky(model.IPv4, model.LoadBalancer, 4), sticky(model.IPv4, model.ClusterIP, 4)}
		list[2].Key.Addr = netip.MustParseAddr("198.51.100.7")
		list[3].Key.Port, list[3].Port = 443, "https"
		b.Want(list[0].Service, list...)
		b.Sync(t)
		remember(t, k, &list[0], 10)
		for i, want := range []int{10, 10, 10, 0} {
			if got := len(rememberedBy(t, k, &list[i], want)); got != want {
				t.Errorf("%v: %d clients, want %d", list[i].Key, got, want)
			}
		}
	})
}

// Disabling affinity deletes the map in the same change, also on kernels whose chains
// must linger. If it is enabled again at once, no client is stored.
func TestEndedAffinityIsForgotten(t *testing.T) {
	for _, linger := range []time.Duration{0, time.Hour} {
		kernels(t, func(t *testing.T, k nft.Kernel) {
			b, fe := stickyTown(t, k, model.IPv4, model.ClusterIP)
			set := func(timeout, after time.Duration) {
				fe.AffinityTimeout = timeout
				b.Want(fe.Service, fe)
				b.Now = b.Now.Add(after)
				b.Track.Expire(b.Now)
				b.Sync(t)
			}
			set(0, linger)
			sets, err := k.Sets(t.Context(), tableRef(model.IPv4))
			if err != nil || slices.ContainsFunc(sets, func(s nft.Set) bool { return s.Ref.Name == memoryOf(&fe).clients() }) {
				t.Errorf("the map of clients is still there (%v)", err)
			}
			set(time.Hour, 0)
			if left := rememberedBy(t, k, &fe, 0); len(left) > 0 {
				t.Errorf("%d clients are remembered from before", len(left))
			}
			if drift := b.Load(t); len(drift)+len(b.Pending()) > 0 {
				t.Errorf("%d objects differ, %d pending", len(drift), len(b.Pending()))
			}
		})
	}
}

// Rules of removed Service ports are not cached for ever.
func TestRulesOfGoneServicesAreDropped(t *testing.T) {
	b := dataplanetest.NewBed(New(Params{Kernel: nft.NewFake()}), dataplanetest.View())
	b.Load(t)
	b.Base()
	b.Sync(t)
	book := b.Driver.(*Driver).chains.own
	before := 0
	for i := range 50 {
		fe := sticky(model.IPv4, model.ClusterIP, 1+i%4)
		fe.Service = dataplanetest.Service(i)
		b.Want(fe.Service, fe)
		b.Sync(t)
		b.Want(fe.Service)
		b.Sync(t)
		if i == 5 {
			before = len(book)
		}
	}
	if len(book) > before {
		t.Errorf("%d chains' rules are kept, after five Services it were %d", len(book), before)
	}
}

// rebuilds are the causes of a rebuild of the IPv4 table that must keep the stored
// clients.
func rebuilds(t *testing.T, k nft.Kernel, b *dataplanetest.Bed) map[string]func() {
	return map[string]func(){
		"distrust": func() {
			if _, err := b.Anew(t.Context(), model.IPv4); err != nil {
				t.Fatal(err)
			}
		},
		"growth": func() {
			for i := range 7_000 {
				b.Want(dataplanetest.Service(10_000+i), benchFrontend(i, 1))
			}
			fixSizes(b)
			_, err := b.Apply(t.Context(), b.Pending())
			b.Rebuild = asRebuild(t, err).Families
			b.Sync(t)
		},
		"one Service from 3 000 to 3 100 endpoints": func() {
			b.Want(dataplanetest.Service(10_000), benchFrontend(0, 3_000))
			b.Sync(t)
			b.Want(dataplanetest.Service(10_000), benchFrontend(0, 3_100))
			fixSizes(b)
			_, err := b.Apply(t.Context(), b.Pending())
			b.Rebuild = asRebuild(t, err).Families
			b.Sync(t)
		},
		"another layout": func() {
			dataplanetest.Commit(t, k, func(batch *nft.Batch) {
				batch.DelChain(tableRef(model.IPv4).Chain(layoutChain))
				batch.NewChain(nft.ChainSpec{Ref: tableRef(model.IPv4).Chain("layout-99")})
				batch.NewChain(nft.ChainSpec{Ref: tableRef(model.IPv4).Chain("of-that-layout")})
				batch.NewSet(nft.SetSpec{Ref: tableRef(model.IPv4).Set("of-that-layout"), Key: []nft.Part{nft.Port}, Verdicts: true})
			})
			b.Load(t)
			b.Sync(t)
		},
		"a hook moved": func() {
			dataplanetest.Commit(t, k, func(batch *nft.Batch) {
				c := tableRef(model.IPv4).Chain("nat-output")
				batch.DelChain(c)
				batch.NewChain(nft.ChainSpec{Ref: c, Hook: hook("filter", nft.HookInput, 7)})
			})
			b.Load(t)
			b.Sync(t)
		},
		"a set of another type": func() {
			dataplanetest.Commit(t, k, func(batch *nft.Batch) {
				s := tableRef(model.IPv4).Set("hairpin")
				batch.FlushChain(tableRef(model.IPv4).Chain("nat-postrouting"))
				batch.DelSet(s)
				batch.NewSet(nft.SetSpec{Ref: s, Key: []nft.Part{nft.Port}})
			})
			b.Load(t)
			b.Sync(t)
		},
	}
}

// fixSizes makes a driver assume a kernel before 6.5.
func fixSizes(b *dataplanetest.Bed) { b.Driver.(*Driver).sizes.fixed = true }

func asRebuild(t *testing.T, err error) *dataplane.RebuildError {
	t.Helper()
	full := rebuildError(err)
	if full == nil {
		t.Fatalf("a full set reads %v", err)
	}
	return full
}

// A rebuild keeps every client and no foreign object, and results in the desired state.
func TestRebuildKeepsClients(t *testing.T) {
	for _, name := range []string{"distrust", "growth", "one Service from 3 000 to 3 100 endpoints", "another layout", "a hook moved", "a set of another type"} {
		t.Run(name, func(t *testing.T) {
			kernels(t, func(t *testing.T, k nft.Kernel) {
				b, fe := stickyTown(t, k, model.IPv4, model.ClusterIP)
				b.WantAll(dataplanetest.Catalogue(bothFamilies[:]))
				b.Want(fe.Service, fe)
				b.Sync(t)
				want := rememberedBy(t, k, &fe, 20)
				if len(want) != 20 {
					t.Fatalf("%d clients to begin with", len(want))
				}
				rebuilds(t, k, b)[name]()
				if got := rememberedBy(t, k, &fe, len(want)); !slices.Equal(got, want) {
					t.Errorf("of %d clients %d are left", len(want), len(got))
				}
				if drift := b.Load(t); len(drift)+len(b.Pending()) > 0 {
					t.Errorf("%d objects differ, %d pending: %v", len(drift), len(b.Pending()), drift)
				}
			})
		})
	}
}

// A map of clients that another program declared differently is deleted; the others are kept.
func TestRebuildReplacesAStrangeMapOfClients(t *testing.T) {
	kernels(t, func(t *testing.T, k nft.Kernel) {
		b, fe := stickyTown(t, k, model.IPv4, model.ClusterIP)
		strange := sticky(model.IPv4, model.ClusterIP, 3)
		strange.Service, strange.Key.Port = dataplanetest.Service(2), 81
		m := memoryOf(&strange)
		dataplanetest.Commit(t, k, func(batch *nft.Batch) {
			batch.NewSet(nft.SetSpec{Ref: tableRef(model.IPv4).Set(m.clients()), Key: []nft.Part{nft.Addr4}, Data: []nft.Part{nft.Port}})
		})
		b.Load(t)
		b.Want(strange.Service, strange)
		b.Sync(t)
		b.Sync(t)
		if left := rememberedBy(t, k, &fe, 20); len(left) != 20 {
			t.Errorf("%d of 20 clients are left", len(left))
		}
		if drift := b.Load(t); len(drift)+len(b.Pending()) > 0 {
			t.Errorf("%d objects differ, %d pending", len(drift), len(b.Pending()))
		}
	})
}

// The names of maps of clients are valid in nft for all names of Services.
func TestMemoryNames(t *testing.T) {
	fe := sticky(model.IPv4, model.ClusterIP, 1)
	for _, c := range []struct {
		key  model.ServiceKey
		port string
		want string
	}{
		{model.ServiceKey{Namespace: "shop", Name: "web"}, "http", "clients/shop/web/tcp/http"},
		{model.ServiceKey{Namespace: "shop", Name: "web"}, "", "clients/shop/web/tcp"},
		{model.ServiceKey{Namespace: "Shop {}", Name: "web"}, "http", "clients/service-"},
		{model.ServiceKey{Namespace: string(make([]byte, 300)), Name: "web"}, "http", "clients/service-"},
	} {
		fe.Service, fe.Port = c.key, c.port
		if got := memoryOf(&fe).clients(); got != c.want && (c.want != "clients/service-" || len(got) != len(c.want)+16) {
			t.Errorf("%v %s: %s, want %s", c.key, c.port, got, c.want)
		}
	}
}
