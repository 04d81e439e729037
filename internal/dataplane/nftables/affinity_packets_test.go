package nftables

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/test/netlab"
)

// Real clients keep their endpoint, and change it when that endpoint is removed.
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
		Service: model.ServiceKey{Namespace: "lab", Name: fmt.Sprintf("%s-%d", where[:2], at.Port())}, Kind: model.ClusterIP,
		Verdict: model.Forward, AffinityTimeout: time.Hour}
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

// A packet that is retransmitted because the first got no answer follows its flow to an
// endpoint that has been removed since. The client must not be stored with that endpoint.
func TestRepeatedPacketTeachesNothing(t *testing.T) {
	for _, f := range bothFamilies {
		t.Run(f.String(), func(t *testing.T) {
			tw := newTown(t)
			at := tw.target(t, f, "vip 2")
			silent := tw.backends(t, f, "pod-b1")
			silent[0].Port = 9 // no process listens
			fe := model.Frontend{Key: model.FrontendKey{Family: f, Protocol: model.UDP, Addr: at.Addr(), Port: at.Port()},
				Service: model.ServiceKey{Namespace: "lab", Name: "sticky"}, Kind: model.ClusterIP, Verdict: model.Forward, Backends: silent, AffinityTimeout: time.Hour}
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
				for range 2 { // the second may use the result of the first
					if _, err := client.Write([]byte("who")); !errors.Is(err, unix.ECONNREFUSED) {
						return
					}
				}
			}
			send()
			if len(rememberedBy(t, tw.k, &fe, 1)) == 0 {
				t.Fatal("the client is not remembered")
			}
			dataplanetest.Commit(t, tw.k, func(b *nft.Batch) { b.FlushSet(tableRef(f).Set(memoryOf(&fe).clients())) }) // its timeout expired
			tw.bed.Load(t)
			fe.Backends = tw.backends(t, f, "pod-a1")
			sync()
			send()
			tw.count(t, "client2", at, 1) // the packet before has arrived by then
			if left := rememberedBy(t, tw.k, &fe, 1); len(left) != 1 {
				t.Errorf("%d clients are remembered, want client2 alone", len(left))
			}
		})
	}
}

// stickyFrontend is a Frontend of one Service port of the lab, with affinity.
func (tw *town) stickyFrontend(t *testing.T, f model.Family, kind model.FrontendKind, to string, pods ...string) model.Frontend {
	t.Helper()
	at := tw.target(t, f, to)
	fe := model.Frontend{Key: model.FrontendKey{Family: f, Protocol: model.UDP, Addr: at.Addr(), Port: at.Port()},
		Service: model.ServiceKey{Namespace: "lab", Name: "shared"}, Port: "dns", Kind: kind, Verdict: model.Forward,
		Backends: tw.backends(t, f, pods...), AffinityTimeout: time.Hour, Masquerade: kind.External()}
	if kind == model.NodePort {
		fe.Key.Addr = netip.Addr{}
	}
	return fe
}

// askers are hosts of the lab that can reach every address of a Service.
var askers = []string{"client", "client2", "pod-a1", "pod-a2", "pod-a3"}

// met sends one request from each host to each address and returns the pod that each host
// reached. It fails if a host reached different pods.
func (tw *town) met(t *testing.T, f model.Family, addresses ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, from := range askers {
		for _, to := range addresses {
			for pod := range tw.count(t, from, tw.target(t, f, to), 2) {
				if before := out[from]; before != "" && before != pod {
					t.Errorf("%s %s: met %s by %s, and %s before", f, from, pod, to, before)
				}
				out[from] = pod
			}
		}
	}
	return out
}

// A client reaches the same endpoint at all addresses of the Service port, as with
// kube-proxy. When an endpoint is removed, clients of other endpoints keep theirs.
func TestAffinityIsSharedByAllAddresses(t *testing.T) {
	tw := newTown(t)
	pods := []string{"pod-a1", "pod-a2", "pod-b1", "pod-b2"}
	for _, f := range bothFamilies {
		want := func(pods ...string) {
			tw.bed.Want(model.ServiceKey{Name: f.String()}, tw.stickyFrontend(t, f, model.ClusterIP, "vip 2", pods...),
				tw.stickyFrontend(t, f, model.LoadBalancer, "lb 2", pods...), tw.stickyFrontend(t, f, model.ExternalIP, "lb 4", pods...),
				tw.stickyFrontend(t, f, model.NodePort, "node 30090", pods...))
			tw.bed.Sync(t)
			if err := tw.lab.FlushConntrack("node-a"); err != nil {
				t.Fatal(err)
			}
		}
		want(pods...)
		before := tw.met(t, f, "vip 2", "lb 2", "lb 4", "node 30090")
		left := before["client"]
		want(slices.DeleteFunc(slices.Clone(pods), func(p string) bool { return p == left })...)
		after := tw.met(t, f, "vip 2", "lb 2", "lb 4", "node 30090")
		for from, pod := range before {
			switch {
			case after[from] == left:
				t.Errorf("%s %s: met %s, which left", f, from, left)
			case pod != left && after[from] != pod:
				t.Errorf("%s %s: met %s, and %s before another endpoint left", f, from, after[from], pod)
			}
		}
	}
}

// Under externalTrafficPolicy Local a client from outside never reaches an endpoint
// on another node, also if the map of clients has one for it; a pod may.
func TestLocalPolicyGoesBeforeMemory(t *testing.T) {
	tw := newTown(t)
	for _, f := range bothFamilies {
		lb, np := tw.stickyFrontend(t, f, model.LoadBalancer, "lb 2", "pod-b1"), tw.stickyFrontend(t, f, model.NodePort, "node 30090", "pod-b1")
		want := func() {
			tw.bed.Want(model.ServiceKey{Name: f.String()}, lb, np)
			tw.bed.Sync(t)
			if err := tw.lab.FlushConntrack("node-a"); err != nil {
				t.Fatal(err)
			}
		}
		want()
		for from, pod := range tw.met(t, f, "lb 2", "node 30090") {
			if pod != "pod-b1" {
				t.Fatalf("%s met %s", from, pod)
			}
		}
		for _, fe := range []*model.Frontend{&lb, &np} {
			fe.LocalOnly, fe.Masquerade, fe.LocalVerdict = true, false, model.Forward
			fe.Backends, fe.LocalBackends = tw.backends(t, f, "pod-a1", "pod-b1"), tw.backends(t, f, "pod-a1")
		}
		want()
		for from, pod := range tw.met(t, f, "lb 2", "node 30090") {
			outside := from == "client" || from == "client2"
			if outside && pod != "pod-a1" || !outside && pod != "pod-b1" {
				t.Errorf("%s: %s met %s", f, from, pod)
			}
		}
	}
}

// When the map of clients is full, a new client is served but not stored; stored clients
// are kept.
func TestFullMemoryTurnsNobodyAway(t *testing.T) {
	tw := newTown(t)
	fe := tw.stickyFrontend(t, model.IPv4, model.ClusterIP, "vip 2", "pod-a1", "pod-b1")
	tw.bed.Want(fe.Service, fe)
	tw.bed.Sync(t)
	before := tw.count(t, "pod-a3", tw.target(t, model.IPv4, "vip 2"), 1)
	remember(t, tw.k, &fe, maxClients-1)
	if err := tw.lab.FlushConntrack("node-a"); err != nil {
		t.Fatal(err)
	}
	if got := tw.count(t, "client", tw.target(t, model.IPv4, "vip 2"), 64); len(got) != 2 {
		t.Errorf("a client that cannot be remembered met %v of 64 times, want both pods", got)
	}
	if after := tw.count(t, "pod-a3", tw.target(t, model.IPv4, "vip 2"), 8); len(after) != 1 || before[slices.Collect(maps.Keys(after))[0]] == 0 {
		t.Errorf("a client that is remembered met %v, before %v", after, before)
	}
	if n := len(rememberedBy(t, tw.k, &fe, maxClients)); n != maxClients {
		t.Errorf("%d clients are remembered, the bound is %d", n, maxClients)
	}
}
