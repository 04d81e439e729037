package engine

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// nodeStep is what is known of the Node of this machine, and what must follow.
type nodeStep struct {
	name      string
	events    []model.Event
	nodePorts string   // NodeView.NodePortAddrs
	problem   []string // words of the one problem that stands; nil: none does
	unknown   bool     // Turn.NodeUnknown
	deleted   bool     // Turn.Node is nil
}

func thisNodeEvent(n *model.Node) model.Event {
	return model.Event{Node: &model.Keyed[string, model.Node]{Key: "n", Value: n}, Origin: "Node n"}
}

// --nodeport-addresses=primary opens NodePorts on the Node's address as last known, else nowhere. Only a folder that
// never had a Node is a machine without a cluster, where they are on every address.
func TestPrimaryWithoutTheNode(t *testing.T) {
	with := &model.Node{Name: "n", Zone: "a", Addrs: []netip.Addr{netip.MustParseAddr("192.168.1.1")}}
	bare := &model.Node{Name: "n"}
	start := []model.Event{hostEvent("192.168.1.1/24", "192.168.2.1/24"), synced}
	for name, c := range map[string]struct {
		cluster bool // an API server
		steps   []nodeStep
	}{
		"API server": {true, []nodeStep{
			{"no Node of this name", start, "[]", []string{"no Node of this name", "--hostname-override", "NodePorts are closed on every address"}, true, true},
			{"registered without addresses", []model.Event{thisNodeEvent(bare)}, "[]", []string{"has no usable address", "NodePorts are closed on every address"}, false, false},
			{"with its address", []model.Event{thisNodeEvent(with)}, "[192.168.1.1]", nil, false, false},
			{"deleted", []model.Event{thisNodeEvent(nil)}, "[192.168.1.1]", []string{"was deleted", "are used until the agent restarts"}, false, true},
			{"registered again without addresses", []model.Event{thisNodeEvent(bare)}, "[192.168.1.1]", []string{"has no usable address", "are used until the agent restarts"}, false, false},
			{"with its address again", []model.Event{thisNodeEvent(with)}, "[192.168.1.1]", nil, false, false},
		}},
		"folder": {false, []nodeStep{
			{"never a Node", start, "[192.168.1.1 192.168.2.1]", nil, false, true},
			{"another machine's Node", []model.Event{{Cluster: true}}, "[]", nil, true, true}, // the folder reports it
			{"its Node", []model.Event{thisNodeEvent(with)}, "[192.168.1.1]", nil, false, false},
			{"no Node any more", []model.Event{thisNodeEvent(nil)}, "[192.168.1.1]", []string{"was deleted"}, false, true},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(newMemDriver(), func(p *Params) {
					p.View = policy.ViewInputs{NodePortPrimary: true, Cluster: c.cluster}
				})
				run(t, b, func() {
					for _, s := range c.steps {
						b.put(s.events...)
						synctest.Wait()
						s.check(t, b)
					}
				})
			})
		})
	}
}

func (s *nodeStep) check(t *testing.T, b *bench) {
	t.Helper()
	turn := b.last()
	if turn.View == nil {
		t.Fatalf("%s: the followers were not told", s.name)
	}
	if got := fmt.Sprint(turn.View.NodePortAddrs); got != s.nodePorts {
		t.Errorf("%s: NodePorts on %s, want %s", s.name, got, s.nodePorts)
	}
	if turn.NodeUnknown != s.unknown || (turn.Node == nil) != s.deleted {
		t.Errorf("%s: unknown %t, Node %+v; want unknown %t, deleted %t", s.name, turn.NodeUnknown, turn.Node, s.unknown, s.deleted)
	}
	list := b.troubled[thisNode{}]
	if len(list) != min(1, len(s.problem)) {
		t.Fatalf("%s: problems %v, want one with %q", s.name, list, s.problem)
	}
	for _, word := range s.problem {
		if !strings.Contains(list[0].String(), word) {
			t.Errorf("%s: problem %q lacks %q", s.name, list[0], word)
		}
	}
}

// The Problems of the Node object that the source reports and those that the engine reports are listed next to each other.
func TestNodeProblemsStandTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), func(p *Params) { p.View = policy.ViewInputs{NodePortPrimary: true, Cluster: true} })
		run(t, b, func() {
			bad := thisNodeEvent(&model.Node{Name: "n"})
			bad.Problems = []model.Problem{{Object: "Node n", Field: "status.addresses[0].address", Reason: "x is no IP address"}}
			b.put(bad, hostEvent("192.168.1.1/24"), synced)
			synctest.Wait()
			if got := len(b.last().Problems); got < 2 {
				t.Errorf("%d problems were told, want that of the object and that of its absence: %v", got, b.last().Problems)
			}
			b.put(thisNodeEvent(&model.Node{Name: "n"}))
			synctest.Wait()
			if turn := b.last(); len(turn.Well) > 0 || len(turn.Problems) != 1 || turn.Problems[0].Kind != model.OnNode {
				t.Errorf("the object is repaired: well %v, problems %v; want that the Node still lacks an address", turn.Well, turn.Problems)
			}
		})
	})
}

// A turn reports what stands of each object when it ends, each problem once, however many reporters the object has and whatever stood in between.
func TestATurnReportsEachProblemOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), func(p *Params) { p.View = policy.ViewInputs{NodePortPrimary: true, Cluster: true} })
		run(t, b, func() {
			check := func(want ...string) {
				t.Helper()
				synctest.Wait()
				var got []string
				for _, p := range b.last().Problems {
					got = append(got, p.String())
				}
				if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) || len(b.last().Well) > 0 {
					t.Errorf("problems %q, well %q; want %q", got, b.last().Well, want)
				}
			}
			const noAddr = "Node n: has no usable address in status.addresses; NodePorts are closed on every address (--nodeport-addresses is primary) until a cloud controller or kubelet sets one, or --bind-address is given"
			bad := thisNodeEvent(&model.Node{Name: "n"})
			bad.Problems = []model.Problem{{Object: "Node n", Field: "status.addresses[0].address", Reason: `"x" is not an IP address`}}
			b.put(hostEvent("192.168.1.1/24"), synced, bad)
			check(`Node n: status.addresses[0].address: "x" is not an IP address`, noAddr)
			b.put(thisNodeEvent(nil))
			check("Node n: was deleted; its zone, addresses and pod CIDRs are used until the agent restarts")
			svc := svcEvent(1, 80)
			svc.Service.Value.ExternalIPs = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
			svc.Problems = []model.Problem{{Object: "Service default/svc-00001", Field: "spec.externalIPs[1]", Reason: "no IP address"}}
			b.put(svc)
			check("Service default/svc-00001: spec.externalIPs[1]: no IP address", "Service default/svc-00001: spec.externalIPs[0]: 127.0.0.1 is a loopback address: it is not served")
		})
	})
}

// A primary address that no interface has is a problem that names the Node, the field and the address, until the machine has it. Where it is not
// known which addresses the machine has, or the data plane opens its own sockets, it is none.
func TestPrimaryAddressOnNoInterface(t *testing.T) {
	with := thisNodeEvent(&model.Node{Name: "n", Addrs: []netip.Addr{netip.MustParseAddr("192.168.9.9"), netip.MustParseAddr("192.168.9.8"), netip.MustParseAddr("fd00::9")}})
	const closed = "so NodePorts are closed there"
	v4, v6 := "Node n: status.addresses: no interface of this machine has 192.168.9.9, "+closed, "Node n: status.addresses: no interface of this machine has fd00::9, "+closed
	here := hostEvent("192.168.9.9/24", "fd00::9/64")
	for name, c := range map[string]struct {
		view   policy.ViewInputs
		events []model.Event
		want   []string
	}{
		"neither":                    {policy.ViewInputs{NodePortPrimary: true}, []model.Event{hostEvent("192.168.1.1/24"), with}, []string{v4, v6}},
		"the machine has none":       {policy.ViewInputs{NodePortPrimary: true}, []model.Event{{Host: &model.HostAddrs{Addrs: []model.HostAddr{}}}, with}, []string{v4, v6}},
		"one of two":                 {policy.ViewInputs{NodePortPrimary: true}, []model.Event{hostEvent("192.168.9.9/24"), with}, []string{v6}},
		"both":                       {policy.ViewInputs{NodePortPrimary: true}, []model.Event{here, with}, nil},
		"the Node came last":         {policy.ViewInputs{NodePortPrimary: true}, []model.Event{with, here}, nil},
		"not known yet":              {policy.ViewInputs{NodePortPrimary: true}, []model.Event{with}, nil},
		"by ranges":                  {policy.ViewInputs{}, []model.Event{hostEvent("192.168.1.1/24"), with}, nil},
		"userspace":                  {policy.ViewInputs{NodePortPrimary: true, Relayed: true}, []model.Event{hostEvent("192.168.1.1/24"), with}, nil},
		"--bind-address":             {policy.ViewInputs{NodePortPrimary: true, BindAddress: netip.MustParseAddr("192.168.9.7")}, []model.Event{hostEvent("fd00::9/64"), with}, []string{"Node n: --bind-address: no interface of this machine has 192.168.9.7, " + closed}},
		"gone, and not here":         {policy.ViewInputs{NodePortPrimary: true}, []model.Event{hostEvent("fd00::9/64"), with, thisNodeEvent(nil)}, []string{"Node n: was deleted", v4}},
		"no cluster, every address":  {policy.ViewInputs{NodePortPrimary: true}, []model.Event{here}, nil},
		"a secondary address is not": {policy.ViewInputs{NodePortPrimary: true}, []model.Event{hostEvent("192.168.9.9/24", "fd00::9/64", "192.168.1.1/24"), with}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(newMemDriver(), func(p *Params) { p.View = c.view })
				run(t, b, func() {
					for _, ev := range append(c.events, synced) {
						b.put(ev)
						synctest.Wait()
					}
					got := b.troubled[thisNode{}]
					if len(got) != len(c.want) {
						t.Fatalf("%d problems %v, want %q", len(got), got, c.want)
					}
					for i, want := range c.want {
						if !strings.HasPrefix(got[i].String(), want) || got[i].Kind != model.OnNode {
							t.Errorf("problem %v, want %q of kind OnNode", got[i], want)
						}
					}
					b.put(here, hostEvent("192.168.9.9/24", "fd00::9/64", "192.168.9.7/24"))
					synctest.Wait()
					for _, p := range b.troubled[thisNode{}] {
						if strings.Contains(p.String(), closed) {
							t.Errorf("the machine has the address now: %v", p)
						}
					}
				})
			})
		})
	}
}
