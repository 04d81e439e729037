package relay

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

func endpoints(weights ...uint16) (out []model.Backend) {
	for i, w := range weights {
		out = append(out, model.Backend{Addr: netip.AddrFrom4([4]byte{10, 244, 1, byte(i + 1)}), Port: 8080, Weight: w})
	}
	return out
}

func client(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)}) }

// draws counts which endpoints get n clients.
func draws(t *testing.T, tg *Target, n int, v visit) map[netip.AddrPort]int {
	t.Helper()
	got := map[netip.AddrPort]int{}
	for range n {
		v := v
		at, ok := tg.pick(&v, time.Unix(1000, 0))
		if !ok {
			t.Fatal("no endpoint")
		}
		got[at]++
	}
	return got
}

func TestShares(t *testing.T) {
	tg := New(Params{Descriptors: 64}).Target(frontend(endpoints(1, 3, 6)...))
	const n = 30_000 // 2 per cent of it are seven standard deviations
	got := draws(t, tg, n, visit{client: client(1)})
	for i, share := range []float64{0.1, 0.3, 0.6} {
		part := float64(got[tg.f.Backends[i].AddrPort()]) / n
		if part < share-0.02 || part > share+0.02 {
			t.Errorf("endpoint %d gets %.3f, want %.1f", i, part, share)
		}
	}
	tg.Set(frontend(endpoints(1, 1)...))
	if got := draws(t, tg, 1000, visit{client: client(1)}); len(got) != 2 {
		t.Errorf("of two endpoints %d get something", len(got))
	}
}

// Those that failed are asked no more; when all have, there is none.
func TestFailedAreLeftOut(t *testing.T) {
	list := endpoints(1, 5, 1)
	tg := New(Params{Descriptors: 64}).Target(frontend(list...))
	v := visit{client: client(1), failed: []netip.AddrPort{list[1].AddrPort()}}
	if got := draws(t, tg, 500, v); got[list[1].AddrPort()] > 0 || len(got) != 2 {
		t.Errorf("%v", got)
	}
	v.failed = []netip.AddrPort{list[0].AddrPort(), list[1].AddrPort(), list[2].AddrPort()}
	if at, ok := tg.pick(&v, time.Now()); ok {
		t.Errorf("%s although all have failed", at)
	}
}

func TestAffinity(t *testing.T) {
	list := endpoints(1, 1, 1, 1)
	f := frontend(list...)
	f.AffinityTimeout = 10 * time.Second
	tg := New(Params{Descriptors: 64}).Target(f)
	now := time.Unix(1000, 0)
	met := map[netip.AddrPort]bool{}
	for n := range 100 {
		first, _ := tg.pick(&visit{client: client(n)}, now)
		met[first] = true
		for i := range 5 { // each connection counts from the last one
			if at, _ := tg.pick(&visit{client: client(n)}, now.Add(time.Duration(9*i)*time.Second)); at != first {
				t.Fatalf("client %d leaves %s for %s", n, first, at)
			}
		}
	}
	if len(met) != 4 {
		t.Errorf("100 clients meet %d endpoints", len(met))
	}
	gone, _ := tg.pick(&visit{client: client(1)}, now)
	f.Backends = slices.DeleteFunc(slices.Clone(list), func(b model.Backend) bool { return b.AddrPort() == gone })
	tg.Set(f)
	next, ok := tg.pick(&visit{client: client(1)}, now)
	if !ok || next == gone {
		t.Errorf("its endpoint is gone, and the client gets %s, %v", next, ok)
	}
	f.Backends = list
	tg.Set(f)
	if at, _ := tg.pick(&visit{client: client(1)}, now); at != next {
		t.Errorf("its first endpoint is back, and the client leaves %s for %s", next, at)
	}
	left := map[netip.AddrPort]bool{}
	for i := range 100 { // each time after the time-out
		at, _ := tg.pick(&visit{client: client(1)}, now.Add(time.Duration(i+2)*time.Minute))
		left[at] = true
	}
	if len(left) < 2 {
		t.Error("affinity never ends")
	}
}

// All addresses of a Service port share what affinity remembers; another port, family or
// Service shares nothing. A timeout that is shortened counts from a client's last connection,
// also for idle clients, as kube-proxy's in iptables mode.
func TestAffinityOfOnePort(t *testing.T) {
	r := New(Params{Descriptors: 64})
	target := func(kind model.FrontendKind, service, port string, family model.Family) *Target {
		f := frontend(endpoints(1, 1, 1, 1)...)
		f.Kind, f.Service.Name, f.Port, f.Key.Family, f.AffinityTimeout = kind, service, port, family, time.Hour
		return r.Target(f)
	}
	vip, node := target(model.ClusterIP, "web", "http", model.IPv4), target(model.NodePort, "web", "http", model.IPv4)
	others := []*Target{target(model.ClusterIP, "web", "metrics", model.IPv4), target(model.ClusterIP, "web", "http", model.IPv6), target(model.ClusterIP, "api", "http", model.IPv4)}
	now, differ := time.Unix(1000, 0), make([]int, len(others))
	for n := range 100 {
		v := visit{client: client(n)}
		first, _ := vip.pick(&v, now)
		if at, _ := node.pick(&v, now); at != first {
			t.Fatalf("client %d meets %s at one address and %s at the other", n, first, at)
		}
		for i, o := range others {
			if at, _ := o.pick(&v, now); at != first {
				differ[i]++
			}
		}
	}
	if slices.Contains(differ, 0) {
		t.Errorf("of 100 clients meet another endpoint at what is another port: %v", differ)
	}
	short := vip.f
	short.AffinityTimeout = 10 * time.Second
	vip.Set(short)
	before, after := 0, 0
	for n := range 100 {
		was := vip.affinity.by[client(n)].at
		if at, _ := node.pick(&visit{client: client(n)}, now.Add(9*time.Second)); n%2 == 0 && at == was {
			before++
		} else if at, _ := vip.pick(&visit{client: client(n)}, now.Add(30*time.Second)); n%2 == 1 && at != was {
			after++
		}
	}
	if before != 50 || after == 0 {
		t.Errorf("10 s after the last connection: %d of 50 clients are kept before, %d of 50 move after", before, after)
	}
	for _, tg := range append(others, vip, node) {
		tg.Remove()
	}
	if len(r.affinities.by) != 0 {
		t.Errorf("what is left when all are gone: %v", r.affinities.by)
	}
}

func TestAffinityIsBounded(t *testing.T) {
	f := frontend(endpoints(1, 1)...)
	f.AffinityTimeout = time.Hour
	tg := New(Params{Descriptors: 64}).Target(f)
	for n := range maxStuck + 100 {
		a := netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
		if _, ok := tg.pick(&visit{client: a}, time.Unix(1000, 0)); !ok {
			t.Fatal("no endpoint")
		}
	}
	if n := len(tg.affinity.by); n > maxStuck {
		t.Errorf("%d clients are remembered, want at most %d", n, maxStuck)
	}
}

// The table defines which endpoint gets a client; if that endpoint fails the next one in the list does.
func TestConsistentHash(t *testing.T) {
	list := endpoints(1, 1, 1)
	f := frontend(list...)
	f.ConsistentHash = true
	f.HashTable = model.HashTable{2, 0, 1, 2, 0, 1, 2, 0}
	tg := New(Params{Descriptors: 64}).Target(f)
	met := map[netip.AddrPort]bool{}
	for n := range 200 {
		want := f.HashTable[f.HashTable.Place(client(n))]
		at, _ := tg.pick(&visit{client: client(n)}, time.Now())
		if at != list[want].AddrPort() {
			t.Fatalf("client %d meets %s, want endpoint %d", n, at, want)
		}
		met[at] = true
		next, _ := tg.pick(&visit{client: client(n), failed: []netip.AddrPort{at}}, time.Now())
		if next != list[(want+1)%3].AddrPort() {
			t.Fatalf("client %d meets %s after %s", n, next, at)
		}
	}
	if len(met) != 3 {
		t.Errorf("200 clients meet %d of 3 endpoints", len(met))
	}
}

// Under externalTrafficPolicy Local pods and the node have the whole cluster, others
// what runs here.
func TestLocalPolicy(t *testing.T) {
	list := endpoints(1, 1, 1)
	f := frontend(list...)
	f.Kind, f.LocalOnly, f.LocalVerdict, f.LocalBackends = model.LoadBalancer, true, model.Forward, list[:1]
	r := New(Params{Descriptors: 64})
	r.SetWhereabouts(Whereabouts{Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, Node: []netip.Addr{netip.MustParseAddr("172.18.0.2")}})
	tg, vip := r.Target(f), netip.MustParseAddr("198.51.100.1")
	for from, want := range map[string]int{"10.244.1.9": 3, "172.18.0.2": 3, "198.51.100.1": 3, "127.0.0.1": 3, "192.0.2.7": 1} {
		if got := draws(t, tg, 300, visit{client: netip.MustParseAddr(from), at: vip}); len(got) != want {
			t.Errorf("%s meets %d endpoints, want %d", from, len(got), want)
		}
	}
}

func TestBudgetSharesOut(t *testing.T) {
	svc := func(n int) model.ServiceKey { return model.ServiceKey{Name: fmt.Sprint(n)} }
	b := budget{free: 1000, held: map[model.ServiceKey]int{}}
	fill := func(n int) (took int, err error) {
		for {
			if err = b.take(svc(n), 2, 0); err != nil {
				return took, err
			}
			took += 2
		}
	}
	if n, err := fill(0); n != 500 || err != errServiceFull {
		t.Errorf("one busy Service gets %d of 1000: %v", n, err)
	}
	if n, err := fill(1); n != 250 || err != errServiceFull {
		t.Errorf("a second one gets %d of 500: %v", n, err)
	}
	for n := 2; n < 8; n++ { // however many are busy, another finds something
		if took, err := fill(n); took < 2 {
			t.Errorf("Service %d gets %d: %v", n, took, err)
		}
	}
	for range 250 {
		b.give(svc(0), 2)
	}
	if _, there := b.held[svc(0)]; there {
		t.Error("a Service without connections is remembered")
	}
	if n, _ := fill(9); n < 200 {
		t.Errorf("after the first has ended another gets %d", n)
	}
	b = budget{free: 1000, most: 20, held: map[model.ServiceKey]int{}}
	if n, _ := fill(0); n != 20 {
		t.Errorf("bounded to 20 it gets %d", n)
	}
}
