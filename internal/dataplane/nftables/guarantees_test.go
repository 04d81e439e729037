package nftables

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/test/netlab"
)

// Every draw finds an endpoint: after the tries on the whole class the last rule draws
// from the lower half, in which every slot is full.
func TestLastDrawIsAlwaysAnswered(t *testing.T) {
	for _, f := range bothFamilies {
		l := langOf(f)
		for _, p := range []pool{{front: byVIP}, {front: byNodePort}, {front: byRange}, {front: byVIP, local: true}, {front: byNodePort, local: true}} {
			for class := uint32(4); class <= maxSlots; class *= 2 {
				rules := leaf{pool: p, class: class}.draws(l)
				want := leaf{pool: p, class: class}.draw(l, class/2)
				if len(rules) != tries+1 || string(tag(rules[tries])) != string(tag(want)) {
					t.Errorf("class %d of %s: %d rules, and the last does not draw from the lower half", class, p.name(), len(rules))
				}
			}
			for class := uint32(1); class <= 2; class++ {
				if n := len(leaf{pool: p, class: class}.draws(l)); n != 1 {
					t.Errorf("class %d of %s: %d rules", class, p.name(), n)
				}
			}
		}
	}
}

// counts runs nft in the node and reports whether a counter of the table "watch" is
// above zero.
func (tw *town) counts(t *testing.T, chain string) bool {
	t.Helper()
	out, err := tw.lab.Node().Run(t.Context(), "nft", "list", "chain", "inet", "watch", chain)
	if err != nil || !strings.Contains(out, "counter packets ") {
		t.Fatalf("%v: %s", err, out)
	}
	return !strings.Contains(out, "counter packets 0 ")
}

// watch counts packets in a hook after the agent's.
func (tw *town) watch(t *testing.T, chain, hook, match string) {
	t.Helper()
	script := "add table inet watch\nadd chain inet watch " + chain + " { type filter hook " + hook + "; }\nadd rule inet watch " + chain + " " + match + " counter\n"
	err := tw.lab.Node().Do(func() error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(script)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Logf("%s", out)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	tw.bed.Load(t)
}

// Packets to an unused address of the Service ranges are dropped on the node, and not
// forwarded to a router that may have a route to that address.
func TestDeadAddressesAreNotSentOn(t *testing.T) {
	tw := newTown(t)
	tw.bed.Sync(t)
	for _, f := range bothFamilies {
		at := tw.target(t, f, "vip 99")
		chain := f.String()
		match := map[model.Family]string{model.IPv4: "ip", model.IPv6: "ip6"}[f] + " daddr " + at.Addr().String()
		tw.watch(t, chain, "forward priority 0", match)
		h, err := tw.lab.Host("pod-a2")
		if err != nil {
			t.Fatal(err)
		}
		if r := askWithin(t, silence, h, model.UDP, at); r.Outcome != netlab.TimedOut || tw.counts(t, chain) {
			t.Errorf("%v (%v), sent on: %v", r, r.Err, tw.counts(t, chain))
		}
	}
	tw.bed.View.ServiceCIDRs = nil // to verify that the counter would count it
	tw.bed.Base()
	tw.bed.Sync(t)
	for _, f := range bothFamilies {
		h, _ := tw.lab.Host("pod-a2")
		askWithin(t, silence, h, model.UDP, tw.target(t, f, "vip 99"))
		if !tw.counts(t, f.String()) {
			t.Errorf("%s: the counter sees nothing even without the Service ranges", f)
		}
	}
}

// The mark that requests masquerading is cleared when the packet leaves the node: later
// users of the packet (a tunnel, another agent) may interpret the mark differently.
func TestMarkDoesNotLeaveTheNode(t *testing.T) {
	tw := newTown(t)
	for _, f := range bothFamilies {
		tw.bed.Want(model.ServiceKey{Name: f.String()}, tw.townFrontends(t, f, model.UDP)...)
	}
	tw.bed.Sync(t)
	tw.watch(t, "marked", "postrouting priority 300", "meta mark & 0x00004000 != 0")
	tw.watch(t, "before", "forward priority 0", "meta mark & 0x00004000 != 0")
	for _, f := range bothFamilies {
		tw.check(t, f, model.UDP, ask{"load balancer from outside", "client", "lb 3", netlab.Answered, anyPod, seesNode})
	}
	if !tw.counts(t, "before") {
		t.Error("no packet was marked at all")
	}
	if tw.counts(t, "marked") {
		t.Error("packets leave with our mark")
	}
}

// The node is a client like others: source ranges that do not name it keep it out.
func TestSourceRangesHoldTheNodeToo(t *testing.T) {
	tw := newTown(t)
	for _, f := range bothFamilies {
		for _, p := range []model.Protocol{model.TCP, model.UDP} {
			tw.bed.Want(model.ServiceKey{Namespace: f.String(), Name: p.String()}, tw.townFrontends(t, f, p)...)
		}
	}
	tw.bed.Sync(t)
	for _, f := range bothFamilies {
		for _, p := range []model.Protocol{model.TCP, model.UDP} {
			for _, to := range []string{"lb 5", "node 30083"} {
				if r := askWithin(t, silence, tw.lab.Node(), p, tw.target(t, f, to)); r.Outcome == netlab.Answered {
					t.Errorf("%s %s: the node reaches %s: %v", f, p, to, r)
				}
			}
			if r := askWithin(t, answerIn, tw.lab.Node(), p, tw.target(t, f, "lb 3")); r.Outcome != netlab.Answered {
				t.Errorf("%s %s: the node does not even reach an unguarded Service: %v", f, p, r)
			}
		}
	}
}
