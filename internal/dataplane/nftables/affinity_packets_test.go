package nftables

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/test/netlab"
)

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
				for range 2 { // what the first one met may be told to the second
					if _, err := client.Write([]byte("who")); !errors.Is(err, unix.ECONNREFUSED) {
						return
					}
				}
			}
			send()
			for end := time.Now().Add(answerIn); len(rememberedBy(t, tw.k, &fe)) == 0; time.Sleep(time.Millisecond) { // bounded poll: packets tell nobody
				if time.Now().After(end) {
					t.Fatal("the client is not remembered")
				}
			}
			commit(t, tw.k, func(b *nft.Batch) { b.FlushSet(tableRef(f).Set(memoryOf(&fe).clients())) }) // its time ran out
			tw.bed.Load(t)
			fe.Backends = tw.backends(t, f, "pod-a1")
			sync()
			send()
			tw.count(t, "client2", at, 1) // the packet before has arrived by then
			if left := rememberedBy(t, tw.k, &fe); len(left) != 1 {
				t.Errorf("%d clients are remembered, want client2 alone", len(left))
			}
		})
	}
}
