package nftables

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/test/netlab"
)

// sticky is a Frontend with affinity and these many endpoints.
func sticky(f model.Family, kind model.FrontendKind, n int) model.Frontend {
	fe := dataplanetest.ClusterIP(f, 1, n)
	fe.Kind, fe.AffinityTimeout = kind, time.Hour
	if kind == model.NodePort {
		fe.Key.Addr, fe.Key.Port = model.FrontendKey{}.Addr, 30080
	}
	return fe
}

// remember does what packets do: client i of a Frontend has met an endpoint.
func remember(t testing.TB, k nft.Kernel, fe *model.Frontend, client int, b model.Backend) {
	t.Helper()
	key := nft.AppendAddr(nil, dataplanetest.Backends(fe.Key.Family, 5000+client, 1)[0].Addr)
	at := fe.Key.Addr
	if !at.IsValid() {
		at = dataplanetest.View().NodePortAddrs[1]
		if fe.Key.Family == model.IPv6 {
			at = dataplanetest.View().NodePortAddrs[2]
		}
	}
	key = nft.AppendPort(nft.AppendProto(nft.AppendAddr(key, at), uint8(fe.Key.Protocol)), fe.Key.Port)
	commit(t, k, func(batch *nft.Batch) {
		batch.AddElement(tableRef(fe.Key.Family).Set(affinityMap), &nft.Element{Key: key, Data: nft.AppendPort(nft.AppendAddr(nil, b.Addr), b.Port)})
	})
}

// remembered gives the endpoints that clients remember, sorted.
func rememberedBy(t testing.TB, k nft.Kernel, f model.Family) []string {
	t.Helper()
	var out []string
	err := k.Elements(t.Context(), tableRef(f).Set(affinityMap), func(e *nft.Element) error {
		out = append(out, string(e.Data))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// stickyTown has a sticky Frontend with 4 endpoints, each remembered by 5 clients.
func stickyTown(t *testing.T, k nft.Kernel, f model.Family, kind model.FrontendKind) (*dataplanetest.Bed, model.Frontend) {
	t.Helper()
	b := dataplanetest.NewBed(New(Params{Kernel: k}), dataplanetest.View())
	b.Load(t)
	b.Base()
	fe := sticky(f, kind, 4)
	b.Want(fe.Service, fe)
	b.Sync(t)
	for i := range 20 {
		remember(t, k, &fe, i, fe.Backends[i%4])
	}
	b.Load(t)
	return b, fe
}

func TestGoneEndpointIsForgotten(t *testing.T) {
	for _, kind := range []model.FrontendKind{model.ClusterIP, model.NodePort} {
		for _, f := range bothFamilies {
			t.Run(kind.String()+f.String(), func(t *testing.T) {
				kernels(t, func(t *testing.T, k nft.Kernel) {
					b, fe := stickyTown(t, k, f, kind)
					gone := fe.Backends[2]
					fe.Backends = slices.Delete(slices.Clone(fe.Backends), 2, 3)
					b.Want(fe.Service, fe)
					b.Sync(t)
					left := rememberedBy(t, k, f)
					if len(left) != 15 || slices.Contains(left, string(nft.AppendPort(nft.AppendAddr(nil, gone.Addr), gone.Port))) {
						t.Errorf("%d clients remember something, want 15 and none of them the endpoint that is gone", len(left))
					}
					if changed, err := b.Driver.Changed(t.Context()); changed || err != nil {
						t.Errorf("our own sweep counts as foreign: %v, %v", changed, err)
					}
				})
			})
		}
	}
}

// A Load that is given up half way takes away nothing of what the sweep must know.
func TestGoneEndpointIsForgottenAfterALoadGivenUp(t *testing.T) {
	kernels(t, func(t *testing.T, k nft.Kernel) {
		b, fe := stickyTown(t, k, model.IPv4, model.ClusterIP)
		ctx, giveUp := context.WithCancel(t.Context())
		if err := b.Driver.Load(ctx, func(dataplane.Key, string) { giveUp() }); err == nil {
			t.Fatal("a load that was given up succeeded")
		}
		fe.Backends = fe.Backends[:3]
		b.Want(fe.Service, fe)
		b.Sync(t)
		if left := rememberedBy(t, k, model.IPv4); len(left) != 15 {
			t.Errorf("%d clients remember something, want 15", len(left))
		}
	})
}

func TestEndedAffinityIsForgotten(t *testing.T) {
	kernels(t, func(t *testing.T, k nft.Kernel) {
		b, fe := stickyTown(t, k, model.IPv4, model.ClusterIP)
		fe.AffinityTimeout = 0
		b.Want(fe.Service, fe)
		b.Sync(t)
		if left := rememberedBy(t, k, model.IPv4); len(left) > 0 {
			t.Errorf("%d clients are still remembered", len(left))
		}
	})
}

// A Service without affinity must not cost a dump of the map.
func TestNoSweepWithoutNeed(t *testing.T) {
	counter := nft.NewCounter(nft.NewFake())
	b, _ := stickyTown(t, counter, model.IPv4, model.ClusterIP)
	plain := dataplanetest.ClusterIP(model.IPv4, 2, 4)
	b.Want(plain.Service, plain)
	b.Sync(t)
	before := counter.Counts()
	b.Want(plain.Service, dataplanetest.ClusterIP(model.IPv4, 2, 3))
	b.Sync(t)
	if now := counter.Counts(); now.Reads != before.Reads || now.Commits != before.Commits+1 || now.Elements != before.Elements+1 {
		t.Errorf("one endpoint less cost %d reads, %d commits, %d elements", now.Reads-before.Reads, now.Commits-before.Commits, now.Elements-before.Elements)
	}
}

// A crash between the commit and the sweep, and a sweep that fails: the next
// Load sees what is stale, and the difference removes it.
func TestUnsweptIsFoundByLoad(t *testing.T) {
	for name, unswept := range map[string]func(t *testing.T, k nft.Kernel, b *dataplanetest.Bed, fe model.Frontend){
		"crash": func(t *testing.T, k nft.Kernel, b *dataplanetest.Bed, fe model.Frontend) {
			remember(t, k, &fe, 99, model.Backend{Addr: fe.Backends[0].Addr, Port: 1})
		},
		"failed sweep": func(t *testing.T, k nft.Kernel, b *dataplanetest.Bed, fe model.Frontend) {
			faulty := k.(*nft.Faulty)
			faulty.OnRead = func(string) error { return errors.New("no dump, says the test") }
			fe.Backends = fe.Backends[:3]
			b.Want(fe.Service, fe)
			if _, err := b.Apply(t.Context(), b.Pending()); err == nil {
				t.Error("nobody hears of it")
			}
			faulty.OnRead = nil
			if _, err := b.Apply(t.Context(), b.Pending()); !errors.Is(err, dataplane.ErrConflict) {
				t.Errorf("an Apply before the Load that is owed says %v", err)
			}
			if changed, err := b.Driver.Changed(t.Context()); !changed || err != nil {
				t.Errorf("nobody asks for a Load: %v, %v", changed, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			kernels(t, func(t *testing.T, k nft.Kernel) {
				faulty := &nft.Faulty{Kernel: k}
				b, fe := stickyTown(t, faulty, model.IPv4, model.ClusterIP)
				unswept(t, faulty, b, fe)
				if drift := b.Load(t); len(drift) == 0 {
					t.Error("what is stale goes unseen")
				}
				b.Sync(t)
				if drift := b.Load(t); len(drift)+len(b.Pending()) > 0 {
					t.Errorf("%d objects differ, %d pending", len(drift), len(b.Pending()))
				}
				if left := len(rememberedBy(t, k, model.IPv4)); left != 20 && left != 15 {
					t.Errorf("%d clients are remembered", left)
				}
			})
		})
	}
}

// A client's time runs out, or it chooses again, while it is being forgotten.
func TestSweepLooksAgain(t *testing.T) {
	for _, why := range []unix.Errno{unix.ENOENT, unix.EEXIST} {
		t.Run(why.Error(), func(t *testing.T) {
			faulty := &nft.Faulty{Kernel: nft.NewFake()}
			b, fe := stickyTown(t, faulty, model.IPv4, model.ClusterIP)
			commits := 0
			faulty.OnCommit = func(*nft.Batch) nft.Fault {
				if commits++; commits == 2 { // the first is the change itself
					return nft.Fault{Err: why}
				}
				return nft.Fault{}
			}
			fe.Backends = fe.Backends[:3]
			b.Want(fe.Service, fe)
			b.Sync(t)
			if left := rememberedBy(t, faulty, model.IPv4); len(left) != 15 {
				t.Errorf("%d clients remember something, want 15", len(left))
			}
		})
	}
}

// Real clients stay where they are, and leave an endpoint that is gone.
func TestAffinityOfPackets(t *testing.T) {
	tw := newTown(t)
	pods := []string{"pod-a1", "pod-a2", "pod-b1", "pod-b2"}
	for _, f := range bothFamilies {
		for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
			for _, where := range []string{"vip 2", "lb 2", "node 30090"} {
				t.Run(f.String()+p.String()+where, func(t *testing.T) { tw.sticks(t, f, p, where, pods) })
			}
		}
	}
}

func (tw *town) sticks(t *testing.T, f model.Family, p model.Protocol, where string, pods []string) {
	at := tw.target(t, f, where)
	fe := model.Frontend{Key: model.FrontendKey{Family: f, Protocol: p, Addr: at.Addr(), Port: at.Port()},
		Kind: model.ClusterIP, Verdict: model.Forward, AffinityTimeout: time.Hour}
	switch where[:2] {
	case "lb":
		fe.Kind, fe.Masquerade = model.LoadBalancer, true
	case "no":
		fe.Kind, fe.Masquerade, fe.Key.Addr = model.NodePort, true, model.FrontendKey{}.Addr
	}
	left := slices.Clone(pods)
	for len(left) > 1 {
		fe.Backends = tw.backends(t, f, left...)
		tw.bed.Want(model.ServiceKey{Namespace: f.String() + p.String(), Name: where}, fe)
		tw.bed.Sync(t)
		// Old flows keep their endpoint; a source port drawn twice must not find one.
		if err := tw.lab.FlushConntrack("node-a"); err != nil {
			t.Fatal(err)
		}
		met := ""
		for range 8 {
			r := askWithin(t, answerIn, tw.lab.Client(), p, at)
			if r.Outcome != netlab.Answered {
				t.Fatalf("%v: %v", r, r.Err)
			}
			if met != "" && r.Backend != met {
				t.Fatalf("met %s, then %s", met, r.Backend)
			}
			met = r.Backend
		}
		i := slices.Index(left, met)
		if i < 0 {
			t.Fatalf("met %s, which is gone", met)
		}
		left = slices.Delete(left, i, i+1)
	}
}

// Affinity is switched off, the sweep fails, and it is switched on again: the old
// clients are forgotten, and who comes right after the commit is not.
func TestClientOfTheSwitchOnIsRemembered(t *testing.T) {
	for _, f := range bothFamilies {
		t.Run(f.String(), func(t *testing.T) {
			tw := newTown(t)
			at := tw.target(t, f, "vip 2")
			fe := model.Frontend{Key: model.FrontendKey{Family: f, Protocol: model.UDP, Addr: at.Addr(), Port: at.Port()},
				Kind: model.ClusterIP, Verdict: model.Forward, Backends: tw.backends(t, f, "pod-a1", "pod-b1")}
			remembering := func(timeout time.Duration) error {
				fe.AffinityTimeout = timeout
				tw.bed.Want(model.ServiceKey{Name: "sticky"}, fe)
				_, err := tw.bed.Apply(t.Context(), tw.bed.Pending())
				return err
			}
			if err := remembering(time.Hour); err != nil {
				t.Fatal(err)
			}
			tw.count(t, "client", at, 1)
			tw.k.OnRead = func(string) error { return errors.New("no dump, says the test") }
			if err := remembering(0); err == nil {
				t.Fatal("the sweep failed and nobody hears of it")
			}
			tw.k.OnRead = nil
			tw.bed.Load(t) // as the engine does after a failure
			if err := remembering(time.Hour); err != nil {
				t.Fatal(err)
			}
			tw.count(t, "client2", at, 1)
			if left := rememberedBy(t, tw.k, f); len(left) != 1 {
				t.Errorf("%d clients are remembered, want the new one only", len(left))
			}
		})
	}
}

// A Frontend comes under externalTrafficPolicy Local, and the answer to that
// commit is lost: the Load that follows knows that clients must be forgotten which
// remember an endpoint that the cluster's list still has.
func TestNarrowedWithoutAnAnswer(t *testing.T) {
	kernels(t, func(t *testing.T, k nft.Kernel) {
		faulty := &nft.Faulty{Kernel: k}
		b, fe := stickyTown(t, faulty, model.IPv4, model.ExternalIP)
		faulty.OnCommit = func(*nft.Batch) nft.Fault { return nft.Fault{Err: unix.ENOBUFS, After: true} }
		fe.LocalOnly, fe.LocalVerdict, fe.LocalBackends = true, model.Forward, fe.Backends[:1]
		b.Want(fe.Service, fe)
		if _, err := b.Apply(t.Context(), b.Pending()); err == nil || dataplane.NothingDone(err) {
			t.Fatalf("the commit's answer was lost, Apply says %v", err)
		}
		faulty.OnCommit = nil
		if changed, err := b.Driver.Changed(t.Context()); !changed || err != nil {
			t.Errorf("nobody asks for a Load: %v, %v", changed, err)
		}
		b.Load(t)
		b.Sync(t)
		if left := rememberedBy(t, k, model.IPv4); len(left) != 5 {
			t.Errorf("%d clients remember something, want the 5 of the local endpoint", len(left))
		}
	})
}

// A packet that is sent again, because nobody answered the first, follows its flow
// to an endpoint that is gone by now. Its client must not be remembered for it.
func TestRepeatedPacketTeachesNothing(t *testing.T) {
	for _, f := range bothFamilies {
		t.Run(f.String(), func(t *testing.T) {
			tw := newTown(t)
			at := tw.target(t, f, "vip 2")
			silent := tw.backends(t, f, "pod-b1")
			silent[0].Port = 9 // nobody listens
			fe := model.Frontend{Key: model.FrontendKey{Family: f, Protocol: model.UDP, Addr: at.Addr(), Port: at.Port()},
				Kind: model.ClusterIP, Verdict: model.Forward, Backends: silent, AffinityTimeout: time.Hour}
			sync := func() {
				tw.bed.Want(model.ServiceKey{Name: "sticky"}, fe)
				tw.bed.Sync(t)
			}
			sync()
			client, err := tw.lab.Client().Dial(t.Context(), "udp", at.String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			send := func() {
				for range 2 { // what the first one met may be told to the second
					if _, err := client.Write([]byte("who")); !errors.Is(err, unix.ECONNREFUSED) {
						return
					}
				}
			}
			send()
			for end := time.Now().Add(answerIn); len(rememberedBy(t, tw.k, f)) == 0; time.Sleep(time.Millisecond) { // bounded poll: packets tell nobody
				if time.Now().After(end) {
					t.Fatal("the client is not remembered")
				}
			}
			fe.Backends = tw.backends(t, f, "pod-a1")
			sync()
			send()
			tw.count(t, "client2", at, 1) // the packet before has arrived by then
			if left := rememberedBy(t, tw.k, f); len(left) != 1 {
				t.Errorf("%d clients are remembered, want client2 alone", len(left))
			}
		})
	}
}
