package engine

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// hostEvent says which addresses the machine has.
func hostEvent(prefixes ...string) model.Event {
	var list []model.HostAddr
	for _, p := range prefixes {
		list = append(list, model.HostAddr{Prefix: netip.MustParsePrefix(p), Link: "eth0"})
	}
	return model.Event{Host: &model.HostAddrs{Addrs: list}}
}

// With --no-external-ips-of-node an external IP that becomes an address of this node leaves
// the kernel, and the keys count as gone; when the node loses the address, it comes back.
func TestExternalIPOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), func(p *Params) { p.View = policy.ViewInputs{NoExternalIPsOfNode: true} })
		external := key(kindVerdict, "203.0.113.9:10250/TCP")
		run(t, b, func() {
			svc := svcEvent(1, 10250)
			svc.Service.Value.ExternalIPs = []netip.Addr{netip.MustParseAddr("203.0.113.9")}
			b.put(svc, hostEvent("192.168.1.1/24"), synced)
			synctest.Wait()
			if b.drv.snapshot()[external] == "" {
				t.Fatalf("not served: %v", b.drv.snapshot())
			}
			b.put(hostEvent("192.168.1.1/24", "203.0.113.9/32"))
			synctest.Wait()
			if v, in := b.drv.snapshot()[external]; in {
				t.Fatalf("the node's own address is served: %s", v)
			}
			if p := b.last().Problems; len(p) != 1 || p[0].Field != "spec.externalIPs[0]" {
				t.Fatalf("problems told: %v", p)
			}
			b.put(hostEvent("192.168.1.1/24"))
			synctest.Wait()
			if b.drv.snapshot()[external] == "" {
				t.Fatal("not served again when the node has lost the address")
			}
		})
	})
}

func TestExternalIPsSwitchedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), func(p *Params) { p.View = policy.ViewInputs{NoExternalIPs: true} })
		run(t, b, func() {
			svc := svcEvent(1, 80)
			svc.Service.Value.ExternalIPs = []netip.Addr{netip.MustParseAddr("203.0.113.9")}
			b.put(svc, synced)
			synctest.Wait()
			if _, in := b.drv.snapshot()[key(kindVerdict, "203.0.113.9:80/TCP")]; in {
				t.Fatal("served although the gate is off")
			}
			if b.drv.snapshot()[key(kindVerdict, "10.96.0.1:80/TCP")] == "" {
				t.Fatal("its cluster IP is not served")
			}
		})
	})
}

// A guarded VIP admits this node by the node's addresses: when they change, its
// Service is decided again, and nobody else's.
func TestNodeAddressChangeDecidesGuardedServicesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var decided []string
		b := newBench(newMemDriver(), func(p *Params) {
			p.OnTurn = func(t *Turn) {
				decided = nil
				for _, d := range t.Decided {
					decided = append(decided, d.Key.Name)
				}
			}
		})
		run(t, b, func() {
			svc := svcEvent(1, 80)
			svc.Service.Value.SourceGuarded = true
			b.put(svc, svcEvent(2, 80), hostEvent("192.168.1.1/24"), synced)
			synctest.Wait()
			b.put(hostEvent("192.168.1.1/24", "192.168.1.2/24"))
			synctest.Wait()
			if len(decided) != 1 || decided[0] != "svc-00001" {
				t.Fatalf("decided again: %v", decided)
			}
		})
	})
}
