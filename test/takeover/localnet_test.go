package takeover_test

import (
	"context"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/scenarios/kit"
	"github.com/fairlead/fairlead/test/takeover"
)

var (
	private      = netip.MustParseAddrPort("127.0.0.1:9999")
	nodePortHere = netip.MustParseAddrPort("127.0.0.1:30080")
)

// TestNeighbourDoesNotReachLoopback covers CVE-2020-8558 (kubernetes#90259): NodePorts on 127.0.0.1 need route_localnet, and with it a neighbour on
// the link that routes 127.0.0.1 to the node reaches programs that listen there for the node alone. Userspace mode listens on 127.0.0.1 instead and
// sets no sysctl.
func TestNeighbourDoesNotReachLoopback(t *testing.T) {
	bin := binary(t)
	for _, mode := range append(slices.Clone(modes), "userspace") {
		t.Run(mode, func(t *testing.T) {
			lab := newLab(t)
			node, neighbour := lab.Node(), lab.Client()
			listenLocally(t, node)
			becomeNeighbour(t, neighbour, node)
			if reply := ask(t, node, private); reply != netlab.Broken { // the reply is one that no echo server sends
				t.Fatalf("the node's own request to %s: %s", private, reply)
			}
			agent := start(t, bin, kit.Setup{Lab: lab, Mode: mode, Files: []kit.File{{Name: "web.yaml", Data: takeover.Manifests}},
				Flags: []string{"--nodeport-addresses", "127.0.0.0/8,172.18.0.0/24"}})
			if reply := ask(t, node, nodePortHere); reply != netlab.Answered {
				t.Errorf("the node's own request to NodePort %s: %s", nodePortHere, reply)
			}
			want := "1" // otherwise the test proves nothing
			if mode == "userspace" {
				want = "0"
			}
			if set := strings.TrimSpace(takeover.Shell(t, node, "cat /proc/sys/net/ipv4/conf/all/route_localnet")); set != want {
				t.Fatalf("route_localnet is %s, want %s", set, want)
			}
			for _, to := range []netip.AddrPort{private, nodePortHere} {
				if reply := ask(t, neighbour, to); reply != netlab.TimedOut {
					t.Errorf("a neighbour's request to %s: %s, want %s", to, reply, netlab.TimedOut)
				}
			}
			if err := agent.Halt(t.Context()); err != nil {
				t.Fatal(err)
			}
			if reply := ask(t, neighbour, private); reply != netlab.TimedOut {
				t.Errorf("with the agent stopped, a neighbour's request: %s", reply)
			}
			if err := agent.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if reply := ask(t, neighbour, private); reply != netlab.TimedOut {
				t.Errorf("after clean-up, a neighbour's request: %s", reply)
			}
		})
	}
}

// TestTheAttackWorksWithoutTheRule proves that the reproduction can fail: with route_localnet alone, the neighbour's requests are answered.
func TestTheAttackWorksWithoutTheRule(t *testing.T) {
	lab := newLab(t)
	listenLocally(t, lab.Node())
	becomeNeighbour(t, lab.Client(), lab.Node())
	if reply := ask(t, lab.Client(), private); reply != netlab.TimedOut {
		t.Errorf("without route_localnet: %s", reply)
	}
	takeover.Shell(t, lab.Node(), "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet")
	if reply := ask(t, lab.Client(), private); reply != netlab.Broken {
		t.Errorf("with route_localnet and no rule: %s, want an answer", reply)
	}
}

// listenLocally starts a server for the node alone.
func listenLocally(t *testing.T, node *netlab.Host) {
	t.Helper()
	listener, err := node.Listen(t.Context(), private)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "for this node alone\n")
			_ = conn.Close()
		}
	}()
}

// becomeNeighbour makes a host send its packets for 127.0.0.1 to the node.
func becomeNeighbour(t *testing.T, h, node *netlab.Host) {
	t.Helper()
	takeover.Shell(t, h, "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet; ip addr del 127.0.0.1/8 dev lo; ip route add 127.0.0.0/8 via "+
		node.Addrs.V4.String()+" dev eth0 src "+h.Addrs.V4.String())
}

// ask sends one request. Two seconds are long for an answer on the same machine, and short enough where none comes.
func ask(t *testing.T, h *netlab.Host, to netip.AddrPort) netlab.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	return h.Ask(ctx, netlab.TCP, to).Outcome
}
