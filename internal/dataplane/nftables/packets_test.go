package nftables

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/test/netlab"
)

// town is a lab whose node-a has this package's driver.
type town struct {
	lab *netlab.Lab
	bed *dataplanetest.Bed
	k   *nft.Faulty
}

func newTown(t *testing.T) *town {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the lab makes network namespaces and needs root: run `make test` as root")
	}
	lab, err := netlab.New(t.Context(), netlab.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	var k *nft.Conn
	if err := lab.Node().Do(func() (err error) { k, err = nft.Open(nft.Config{}); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	faulty := &nft.Faulty{Kernel: k}
	tw := &town{lab: lab, k: faulty, bed: dataplanetest.NewBed(New(Params{Kernel: faulty}), model.NodeView{
		NodePortAddrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), lab.Node().Addrs.V4, lab.Node().Addrs.V6},
		Local: model.LocalDetector{Mode: model.DetectCIDR, CIDRs: []netip.Prefix{
			netip.MustParsePrefix(netlab.ClusterCIDR4), netip.MustParsePrefix(netlab.ClusterCIDR6)}},
		ServiceCIDRs:  []netip.Prefix{netip.MustParsePrefix(netlab.ServiceCIDR4), netip.MustParsePrefix(netlab.ServiceCIDR6)},
		MasqueradeBit: 14,
	})}
	if err := lab.Node().Sysctl("net/ipv4/conf/all/route_localnet", "1"); err != nil {
		t.Fatal(err)
	}
	tw.bed.Checked = func(t testing.TB) {
		t.Helper()
		if out, err := lab.Node().Run(t.Context(), "nft", "list", "ruleset"); err != nil || !strings.Contains(out, "table ip6 fairlead") {
			t.Errorf("nft does not list our tables: %v: %.200s", err, out)
		}
	}
	tw.bed.Load(t)
	tw.bed.Base()
	return tw
}

// backends names pods of the lab; those of node-a are local.
func (tw *town) backends(t *testing.T, f model.Family, pods ...string) []model.Backend {
	t.Helper()
	var out []model.Backend
	for _, name := range pods {
		h, err := tw.lab.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, model.Backend{Addr: pickAddr(f, h.Addrs), Port: 8080, Weight: 1, Local: h.Node == "node-a"})
	}
	return out
}

func pickAddr(f model.Family, a netlab.Addrs) netip.Addr {
	if f == model.IPv6 {
		return a.V6
	}
	return a.V4
}

func wire(p model.Protocol) netlab.Protocol { return netlab.Protocol(strings.ToLower(p.String())) }

// ask is one row of expectations.
type ask struct {
	what string
	from string
	to   string // "vip 1", "lb 3", "node 30080", with ":port" for another port
	want netlab.Outcome
	pods []string // every one of them answers, and no other
	// seen is whom the pod sees: the asker's own address, or a node's.
	seen string
}

const (
	seesClient = "client"
	seesNode   = "node"
)

func (tw *town) target(t *testing.T, f model.Family, to string) netip.AddrPort {
	t.Helper()
	where, n, _ := strings.Cut(to, " ")
	n, port, other := strings.Cut(n, ":")
	p := uint16(80)
	if other {
		_, _ = fmt.Sscan(port, &p)
	}
	switch where {
	case "vip":
		return netip.AddrPortFrom(netip.MustParseAddr(map[model.Family]string{model.IPv4: "10.96.0.", model.IPv6: "fd00:10:96::"}[f]+n), p)
	case "lb":
		return netip.AddrPortFrom(netip.MustParseAddr(map[model.Family]string{model.IPv4: "198.51.100.", model.IPv6: "2001:db8:100::"}[f]+n), p)
	case "node":
		_, _ = fmt.Sscan(n, &p)
		return netip.AddrPortFrom(pickAddr(f, tw.lab.Node().Addrs), p)
	case "localhost":
		_, _ = fmt.Sscan(n, &p)
		return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), p)
	}
	t.Fatalf("where is %q", to)
	return netip.AddrPort{}
}

const (
	// answerIn bounds the wait for an answer or a refusal, which are usually there
	// at once: a second for each lost SYN or neighbour solicitation, and a busy machine.
	answerIn = 30 * time.Second
	// silence is how long nothing must come where nothing should. There is nothing
	// to wait for that would end it earlier.
	silence = 400 * time.Millisecond
	// rounds is how often a row that wants an answer asks at least: that is how
	// surely no other pod answers.
	rounds = 16
	// maxRounds is how often it asks for a pod not seen yet. In 16 rounds one of two
	// stays unseen by chance once in 32 768 rows, and the package has hundreds.
	maxRounds = 128
)

// check asks and compares.
func (tw *town) check(t *testing.T, f model.Family, p model.Protocol, a ask) {
	t.Helper()
	from, err := tw.lab.Host(a.from)
	if err != nil {
		t.Fatal(err)
	}
	wait := answerIn
	if a.want == netlab.TimedOut {
		wait = silence
	}
	seen := map[string]bool{}
	for i := 0; i < rounds || i < maxRounds && len(seen) < len(a.pods); i++ {
		r := askWithin(t, wait, from, p, tw.target(t, f, a.to))
		if r.Outcome != a.want {
			t.Errorf("%s: %s -> %s: %v (%v), want %s", a.what, a.from, a.to, r, r.Err, a.want)
			return
		}
		if r.Outcome != netlab.Answered {
			return
		}
		// The node's own address is what it should be seen with.
		if preserved := r.Source.Addr() == pickAddr(f, from.Addrs); a.from != "node-a" && preserved != (a.seen == seesClient) {
			t.Errorf("%s: %s -> %s: %v, should see the %s", a.what, a.from, a.to, r, a.seen)
			return
		}
		seen[r.Backend] = true
	}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, a.pods) {
		t.Errorf("%s: %s -> %s answered by %v, want %v", a.what, a.from, a.to, got, a.pods)
	}
}

// askWithin asks once.
func askWithin(t *testing.T, wait time.Duration, from *netlab.Host, p model.Protocol, to netip.AddrPort) netlab.Reply {
	ctx, stop := context.WithTimeout(t.Context(), wait)
	defer stop()
	return from.Ask(ctx, wire(p), to)
}

// townFrontends are one of each sort of Service. Numbers are those of ask.to.
func (tw *town) townFrontends(t *testing.T, f model.Family, p model.Protocol) []model.Frontend {
	t.Helper()
	both := tw.backends(t, f, "pod-a1", "pod-b1")
	slices.SortFunc(both, func(a, b model.Backend) int { return a.Addr.Compare(b.Addr) })
	fe := func(kind model.FrontendKind, to string, backends []model.Backend) model.Frontend {
		at := tw.target(t, f, to)
		out := model.Frontend{Key: model.FrontendKey{Family: f, Protocol: p, Addr: at.Addr(), Port: at.Port()},
			Kind: kind, Verdict: model.Forward, Backends: backends, Masquerade: kind.External()}
		if kind == model.NodePort {
			out.Key.Addr = netip.Addr{}
		}
		return out
	}
	with := func(f model.Frontend, change func(*model.Frontend)) model.Frontend { change(&f); return f }
	local := func(f *model.Frontend) {
		f.Masquerade, f.LocalOnly, f.LocalVerdict, f.LocalBackends = false, true, model.Forward, tw.backends(t, f.Key.Family, "pod-a1")
	}
	noLocal := func(f *model.Frontend) { local(f); f.LocalVerdict, f.LocalBackends = model.Drop, nil }
	guarded := func(f *model.Frontend) {
		f.Guarded = true
		client := pickAddr(f.Key.Family, tw.lab.Client().Addrs)
		f.SourceRanges = []netip.Prefix{netip.PrefixFrom(client, client.BitLen())}
	}
	refused := func(f *model.Frontend) { f.Verdict, f.Backends = model.Reject, nil }
	return []model.Frontend{
		fe(model.ClusterIP, "vip 1", both),
		fe(model.LoadBalancer, "lb 3", both),
		with(fe(model.ClusterIP, "vip 4", nil), refused),
		with(fe(model.LoadBalancer, "lb 4", nil), refused),
		with(fe(model.LoadBalancer, "lb 5", both), guarded),
		with(fe(model.LoadBalancer, "lb 6", both), local),
		fe(model.ClusterIP, "vip 7", tw.backends(t, f, "pod-a1")),
		with(fe(model.ClusterIP, "vip 8", nil), func(f *model.Frontend) { f.Verdict = model.Drop }),
		with(fe(model.LoadBalancer, "lb 9", both), noLocal),
		fe(model.NodePort, "node 30080", both),
		with(fe(model.NodePort, "node 30081", both), local),
		with(fe(model.NodePort, "node 30082", nil), refused),
		with(fe(model.NodePort, "node 30083", both), guarded),
		with(fe(model.NodePort, "node 30084", both), noLocal),
	}
}

var (
	anyPod  = []string{"pod-a1", "pod-b1"}
	onlyA1  = []string{"pod-a1"}
	townAsk = []ask{
		{"ClusterIP from a pod", "pod-a2", "vip 1", netlab.Answered, anyPod, seesClient},
		{"ClusterIP from the node", "node-a", "vip 1", netlab.Answered, anyPod, seesNode},
		{"ClusterIP from outside is masqueraded", "client", "vip 1", netlab.Answered, anyPod, seesNode},
		{"unknown port of a live ClusterIP", "pod-a2", "vip 1:81", netlab.Refused, nil, ""},
		{"unknown port of a live ClusterIP, from the node", "node-a", "vip 1:81", netlab.Refused, nil, ""},
		{"dead address of the Service range", "pod-a2", "vip 99", netlab.TimedOut, nil, ""},
		{"load balancer from outside", "client", "lb 3", netlab.Answered, anyPod, seesNode},
		{"no endpoints", "pod-a2", "vip 4", netlab.Refused, nil, ""},
		{"no endpoints, from the node", "node-a", "vip 4", netlab.Refused, nil, ""},
		{"no endpoints, from outside", "client", "lb 4", netlab.Refused, nil, ""},
		{"guarded, allowed", "client", "lb 5", netlab.Answered, anyPod, seesNode},
		{"guarded, other client", "client2", "lb 5", netlab.TimedOut, nil, ""},
		{"guarded, a pod", "pod-a2", "lb 5", netlab.TimedOut, nil, ""},
		{"Local from outside keeps the address", "client", "lb 6", netlab.Answered, onlyA1, seesClient},
		{"Local from a pod goes anywhere", "pod-a2", "lb 6", netlab.Answered, anyPod, seesClient},
		{"Local from the node goes anywhere", "node-a", "lb 6", netlab.Answered, anyPod, seesNode},
		{"hairpin", "pod-a1", "vip 7", netlab.Answered, onlyA1, seesNode},
		{"no hairpin for a neighbour", "pod-a2", "vip 7", netlab.Answered, onlyA1, seesClient},
		{"internal Local without endpoints here", "pod-a2", "vip 8", netlab.TimedOut, nil, ""},
		{"Local without endpoints here, from outside", "client", "lb 9", netlab.TimedOut, nil, ""},
		{"Local without endpoints here, from a pod", "pod-a2", "lb 9", netlab.Answered, anyPod, seesClient},
		{"node port", "client", "node 30080", netlab.Answered, anyPod, seesNode},
		{"node port from the node itself", "node-a", "node 30080", netlab.Answered, anyPod, seesNode},
		{"node port, Local", "client", "node 30081", netlab.Answered, onlyA1, seesClient},
		{"node port, Local, from a pod", "pod-a2", "node 30081", netlab.Answered, anyPod, seesClient},
		{"node port without endpoints", "client", "node 30082", netlab.Refused, nil, ""},
		{"node port without endpoints, from the node", "node-a", "node 30082", netlab.Refused, nil, ""},
		{"guarded node port, allowed", "client", "node 30083", netlab.Answered, anyPod, seesNode},
		{"guarded node port, other client", "client2", "node 30083", netlab.TimedOut, nil, ""},
		{"node port, Local without endpoints here", "client", "node 30084", netlab.TimedOut, nil, ""},
	}
)

func TestPackets(t *testing.T) {
	tw := newTown(t)
	for _, f := range bothFamilies {
		for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
			tw.bed.Want(model.ServiceKey{Namespace: f.String(), Name: p.String()}, tw.townFrontends(t, f, p)...)
		}
	}
	tw.bed.Sync(t)
	for _, f := range bothFamilies {
		for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
			t.Run(f.String()+p.String(), func(t *testing.T) {
				for _, a := range townAsk {
					tw.check(t, f, p, a)
				}
				if f == model.IPv4 {
					tw.check(t, f, p, ask{"node port on localhost", "node-a", "localhost 30080", netlab.Answered, anyPod, seesNode})
				}
			})
		}
	}
}

// How pods are distinguished from others: by device, or not at all.
func TestPacketsByDetector(t *testing.T) {
	tw := newTown(t)
	for _, f := range bothFamilies {
		tw.bed.Want(model.ServiceKey{Name: f.String()}, tw.townFrontends(t, f, model.TCP)...)
	}
	fromPod, fromClient, local := townAsk[0], townAsk[2], townAsk[14]
	unmasked := ask{"not detected: nobody is masqueraded", "client", "vip 7", netlab.Answered, onlyA1, seesClient}
	all := ask{"masqueradeAll: a pod too", "pod-a2", "vip 1", netlab.Answered, anyPod, seesNode}
	localAsOther := ask{"not detected: a pod is like anybody", "pod-a2", "lb 6", netlab.Answered, onlyA1, seesClient}
	for _, c := range []struct {
		name   string
		change func(v *model.NodeView)
		asks   []ask
	}{
		{"prefix", func(v *model.NodeView) {
			v.Local = model.LocalDetector{Mode: model.DetectInterfaceNamePrefix, Interface: "veth-a"}
		}, []ask{fromPod, fromClient, local}},
		{"device", func(v *model.NodeView) {
			v.Local = model.LocalDetector{Mode: model.DetectBridgeInterface, Interface: "veth-a2"}
		}, []ask{fromPod, fromClient, local}},
		{"none", func(v *model.NodeView) { v.Local = model.LocalDetector{} }, []ask{fromPod, unmasked, localAsOther}},
		{"all", func(v *model.NodeView) { v.MasqueradeAll = true; v.MasqueradeBit = 5 }, []ask{all, fromClient}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.change(&tw.bed.View)
			tw.bed.Base()
			for _, f := range bothFamilies {
				tw.bed.Want(model.ServiceKey{Name: f.String()}, tw.townFrontends(t, f, model.TCP)...)
			}
			tw.bed.Sync(t)
			for _, f := range bothFamilies {
				for _, a := range c.asks {
					tw.check(t, f, model.TCP, a)
				}
			}
		})
	}
}

// Weights share out connections.
func TestWeights(t *testing.T) {
	tw := newTown(t)
	for _, f := range bothFamilies {
		t.Run(f.String(), func(t *testing.T) {
			fe := tw.townFrontends(t, f, model.UDP)[0]
			fe.Backends = tw.backends(t, f, "pod-a1", "pod-b1", "pod-b2")
			fe.Backends[0].Weight = 6
			tw.bed.Want(model.ServiceKey{Name: f.String()}, fe)
			tw.bed.Sync(t)
			if n := tw.count(t, "pod-a2", tw.target(t, f, "vip 1"), 400)["pod-a1"]; n < 260 || n > 340 { // 300 expected, 4.6 sigma
				t.Errorf("weight 6 of 8 got %d of 400", n)
			}
		})
	}
}

// count asks n times over UDP and counts who answers.
func (tw *town) count(t *testing.T, from string, to netip.AddrPort, n int) map[string]int {
	t.Helper()
	h, err := tw.lab.Host(from)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for range n {
		r := askWithin(t, answerIn, h, model.UDP, to)
		if r.Outcome != netlab.Answered {
			t.Fatalf("%s -> %s: %v: %v", from, to, r, r.Err)
		}
		out[r.Backend]++
	}
	return out
}
