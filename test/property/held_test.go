package property

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// A Service that the kernel rejects right after a restart keeps its earlier rules, which
// this process never wrote. A rebuild cannot write them: only that Service loses them,
// and no other Service is affected.
func TestRebuildWithRulesOfBeforeTheRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settle := func() {
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		w := newWorld(rand.New(rand.NewPCG(1, 1)))
		kernel := nft.NewFake()
		var poison, full atomic.Bool
		told := settings{poison: &poison, full: &full}
		service := func(i int) {
			s := &model.Service{Key: key(i), Proxied: true, ClusterIPs: []netip.Addr{v4(10, 96, 0, 1+i)}, AffinityTimeout: time.Hour,
				Ports: []model.ServicePort{{Name: "a", Protocol: model.TCP, Port: 80}}}
			guard(s)
			s.LoadBalancerIPs = []netip.Addr{v4(203, 0, 113, 100+i)}
			w.services[i] = s
		}
		endpoints := func(i, n int) {
			sl := &model.Slice{Key: model.SliceKey(key(i)), Service: key(i), Family: model.IPv4,
				Ports: []model.SlicePort{{Name: "a", Protocol: model.TCP, Port: 8080}}}
			for j := range n {
				sl.Endpoints = append(sl.Endpoints, model.Endpoint{Addr: v4(10, 244, i, 1+j), Node: "m", Ready: true, Serving: true})
			}
			w.slices[i] = sl
		}
		for _, i := range []int{0, keys - 1} {
			service(i)
			endpoints(i, 2)
		}
		a := startAgent(t, kernel, told)
		a.put(w.all()...)
		settle()
		a.stop()
		poison.Store(true)
		endpoints(keys-1, 9) // other chains than before the restart
		a = startAgent(t, kernel, told)
		a.put(w.all()...)
		settle()
		if a.held.Load() != 1 {
			t.Fatalf("%d Services in quarantine, want the poisoned one: %v", a.held.Load(), a.last.Load())
		}
		if n := rulesBehind(t, kernel, w.services[keys-1].ClusterIPs[0]); n == 0 {
			t.Error("the chain of the Service in quarantine has lost its rules")
		}
		full.Store(true)
		endpoints(0, 5)
		a.put(w.sliceEvent(0))
		settle()
		if !a.good.Load() {
			t.Errorf("another Service's change is not in the kernel: %v", a.last.Load())
		}
		poison.Store(false)
		endpoints(keys-1, 10)
		a.put(w.sliceEvent(keys - 1))
		settle()
		if !a.good.Load() || a.held.Load() != 0 {
			t.Errorf("the Service does not come back: %v", a.last.Load())
		}
		a.stop()
	})
}

// rulesBehind returns the number of rules in the chain to which a ClusterIP's element
// jumps.
func rulesBehind(t *testing.T, k nft.Kernel, vip netip.Addr) (n int) {
	t.Helper()
	table, chain := nft.TableRef{Family: nft.IPv4, Name: "fairlead"}, ""
	check(t, k.Elements(t.Context(), table.Set("services"), func(e *nft.Element) error {
		if bytes.HasPrefix(e.Key, vip.AsSlice()) {
			chain = e.Verdict.Chain
		}
		return nil
	}))
	rules, err := k.Rules(t.Context(), table)
	check(t, err)
	for _, r := range rules {
		if r.Chain.Name == chain {
			n++
		}
	}
	return n
}
