package takeover_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
	"github.com/fairlead/fairlead/test/scenarios/kit"
	"github.com/fairlead/fairlead/test/takeover"
)

// schedulers are all that Debian builds of Linux 6.1 have; 6.12 also has twos. No kernel has the last one.
var schedulers = []string{"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "sed", "nq", "fo", "ovf", "mh", "twos", "nosuch"}

// TestIPVSNode checks how an agent in ipvs mode configures a node apart from its Services: settings, schedulers, and its handling of changes by other
// programs.
func TestIPVSNode(t *testing.T) {
	needIPVS(t)
	t.Setenv("TMPDIR", t.TempDir())
	bin, lab := binary(t), newLab(t)
	warmUp(t, lab.Node(), bin)
	weighted := service("weighted", "10.96.2.1", "", "10.244.1.11]}, {addresses: [10.244.1.12")
	weighted.Data = strings.Replace(weighted.Data, "namespace: demo}", "namespace: demo, annotations: {fairlead.dev/weights: 10.244.1.11=3}}", 1)
	files := []kit.File{{Name: "web.yaml", Data: serving(1)}, weighted, service("excluded", "10.96.9.9", "", "10.244.1.11")}
	for i, name := range schedulers {
		files = append(files, withScheduler(i, name))
	}
	n := &ipvsNode{lab: lab, node: lab.Node()}
	n.agent = start(t, bin, kit.Setup{Lab: lab, Mode: "ipvs", Files: files, Flags: []string{"--ipvs-strict-arp", "--ipvs-tcp-timeout", "10m",
		"--ipvs-tcpfin-timeout", "7s", "--ipvs-udp-timeout", "20s", "--ipvs-sync-period", "2s", "--ipvs-exclude-cidrs", "10.96.9.0/24"}})
	t.Run("settings", n.settings)
	t.Run("schedulers", n.schedulers)
	t.Run("weights", n.weights)
	// A retry of a Service that the kernel rejects reads all of IPVS, and would find the drift that the periodic sync must find.
	var mended []kit.File
	for i := slices.Index(schedulers, "twos"); i < len(schedulers); i++ {
		mended = append(mended, withScheduler(i, "rr"))
	}
	if err := n.agent.Apply(t.Context(), mended); err != nil {
		t.Fatal(err)
	}
	t.Run("table cleared", func(t *testing.T) { n.heals(t, "ipvsadm -C") })
	t.Run("device deleted", func(t *testing.T) { n.heals(t, "ip link del kube-ipvs0") })
	t.Run("others", n.others)
	t.Run("port gone and made again", n.madeAgain)
	if err := n.agent.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

type ipvsNode struct {
	lab   *netlab.Lab
	node  *netlab.Host
	agent *kit.Fairlead
}

// withScheduler returns the Service named after the scheduler with index i, with any scheduler.
func withScheduler(i int, scheduler string) kit.File {
	f := service("with-"+schedulers[i], scheduled(i).Addr().String(), "", "10.244.1.11")
	f.Data = strings.Replace(f.Data, "namespace: demo}", "namespace: demo, annotations: {fairlead.dev/ipvs-scheduler: "+scheduler+"}}", 1)
	return f
}

// scheduled returns the address of that Service.
func scheduled(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 1, byte(i + 1)}), 80)
}

// settings checks that the sysctls have kube-proxy's values, except for conn_reuse_mode, which the agent sets itself
// (docs/design/ipvs.md).
func (n *ipvsNode) settings(t *testing.T) {
	for path, want := range map[string]string{"net/ipv4/vs/conntrack": "1", "net/ipv4/vs/conn_reuse_mode": "1", "net/ipv4/vs/expire_nodest_conn": "1",
		"net/ipv4/vs/expire_quiescent_template": "1", "net/ipv4/ip_forward": "1", "net/ipv4/conf/all/arp_ignore": "1", "net/ipv4/conf/all/arp_announce": "2"} {
		if got := strings.TrimSpace(takeover.Shell(t, n.node, "cat /proc/sys/"+path)); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	if got := takeover.Shell(t, n.node, "ipvsadm -l --timeout"); !strings.Contains(got, "600 7 20") {
		t.Errorf("timeouts of TCP, TCP after a FIN, and UDP: %s", got)
	}
}

// asks sends one request from the client and returns the reply.
func (n *ipvsNode) asks(t *testing.T, to netip.AddrPort) netlab.Reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Of(5*time.Second))
	defer cancel()
	return n.lab.Client().Ask(ctx, netlab.TCP, to)
}

// schedulers checks that each scheduler serves. If the kernel does not have one, only its own Service fails, and the log names it.
func (n *ipvsNode) schedulers(t *testing.T) {
	list := takeover.Shell(t, n.node, "ipvsadm -S -n")
	if strings.Contains(n.agent.Log(), "drift caused by another program") {
		t.Error("the log reports as drift what the agent wrote before the kernel rejected a Service")
	}
	for i, name := range schedulers {
		to := scheduled(i)
		served := strings.Contains(list, fmt.Sprintf("-A -t %s -s %s", to, name))
		switch {
		case !served && i < slices.Index(schedulers, "twos"):
			t.Errorf("scheduler %s is not in\n%s", name, list)
		case !served && !strings.Contains(n.agent.Log(), "with-"+name):
			t.Errorf("the log does not name the Service whose scheduler, %s, the kernel does not have", name)
		case served && name == "nosuch":
			t.Errorf("a kernel with a scheduler called nosuch:\n%s", list)
		case served:
			if got := n.asks(t, to); got.Outcome != netlab.Answered {
				t.Errorf("with scheduler %s: %s", name, got)
			}
		}
	}
}

// weights checks that rr becomes wrr, which sends three of four connections in a row to the endpoint with weight 3.
func (n *ipvsNode) weights(t *testing.T) {
	to := netip.MustParseAddrPort("10.96.2.1:80")
	if list := takeover.Shell(t, n.node, "ipvsadm -S -n | grep 10.96.2.1:80"); !strings.Contains(list, "-s wrr") || !strings.Contains(list, "10.244.1.11:8080 -m -w 3") ||
		!strings.Contains(list, "10.244.1.12:8080 -m -w 1") {
		t.Errorf("the weights are not in\n%s", list)
	}
	met := map[string]int{}
	for range 8 {
		met[n.asks(t, to).Backend]++
	}
	if met["pod-a1"] != 6 || met["pod-a2"] != 2 {
		t.Errorf("of 8 connections went %v, want 6 to pod-a1, 2 to pod-a2", met)
	}
}

// everything returns the state of ipvs mode in IPVS and on the device, without the kit's own Service, which changes with each file.
func (n *ipvsNode) everything(t *testing.T) string {
	t.Helper()
	lines := strings.Split(takeover.Shell(t, n.node, "{ ipvsadm -S -n | grep -v :7000 || true; }; ip -o addr show kube-ipvs0 2>/dev/null | awk '{print $4}'"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// heals checks that the agent restores what another program removes.
func (n *ipvsNode) heals(t *testing.T, command string) {
	before := n.everything(t)
	takeover.Shell(t, n.node, command)
	takeover.Eventually(t, "all of it is back", func() error {
		if now := n.everything(t); now != before {
			return errors.New(now)
		}
		return nil
	})
	answers(t, n.lab.Client(), []string{"pod-a1", "pod-b1"})
}

// others checks that a foreign virtual server on an address of the agent's is removed. One on another address stays, as do one by a firewall mark and
// one on an excluded address where the agent has a Service.
func (n *ipvsNode) others(t *testing.T) {
	before := n.everything(t)
	theirs := []string{"-A -t 203.0.113.5:80 -s rr", "-A -t 10.96.9.9:81 -s rr", "-A -f 7 -s rr"}
	takeover.Shell(t, n.node, "ipvsadm -A -t 10.96.0.10:4321 -s rr; ipvsadm -a -t 10.96.0.10:4321 -r 10.244.1.11:8080 -m; ipvsadm "+
		strings.Join(theirs, "; ipvsadm "))
	want := append(strings.Split(before, "\n"), theirs...)
	slices.Sort(want)
	takeover.Eventually(t, "only what is on an address of ours has gone", func() error {
		if now := n.everything(t); now != strings.Join(want, "\n") {
			return errors.New(now)
		}
		return nil
	})
	takeover.Shell(t, n.node, "ipvsadm -D -t 203.0.113.5:80; ipvsadm -D -t 10.96.9.9:81; ipvsadm -D -f 7")
}

// madeAgain checks that connections continue while their Service loses a port and gets it back, and that no server drains for ever after that.
func (n *ipvsNode) madeAgain(t *testing.T) {
	before := n.everything(t)
	flow, err := n.lab.Client().Open(t.Context(), netlab.TCP, takeover.ClusterIP)
	if err != nil {
		t.Fatal(err)
	}
	defer flow.Close()
	goesOn := func(when string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience.Of(5*time.Second))
		defer cancel()
		if reply := flow.Ask(ctx); reply.Outcome != netlab.Answered {
			t.Fatalf("%s: %s (%v)", when, reply, reply.Err)
		}
	}
	apply := func(text string) {
		t.Helper()
		if err := n.agent.Apply(t.Context(), []kit.File{{Name: "web.yaml", Data: text}}); err != nil {
			t.Fatal(err)
		}
	}
	goesOn("at first")
	apply(strings.Replace(serving(1), "  - {name: t, protocol: TCP, port: 80, targetPort: 8080, nodePort: 30080}\n", "", 1))
	goesOn("without the port")
	if got := n.asks(t, takeover.ClusterIP); got.Outcome != netlab.Refused {
		t.Errorf("a new connection to a port that is gone: %s, want a refusal", got)
	}
	apply(serving(1))
	goesOn("with the port again")
	answers(t, n.lab.Client(), []string{"pod-a1", "pod-b1"})
	if now := n.everything(t); now != before {
		t.Errorf("there is now\n%s\nwhere was\n%s", now, before)
	}
}
