package offload

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/dataplane/iptables"
	"github.com/fairlead/fairlead/internal/dataplane/nftables"
	kerneliptables "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/test/flowlab"
)

// plane makes the driver beside, and what the acceleration must know of it.
type plane func(*testing.T, *nft.Conn, *nft.Ledger) (dataplane.Driver, *Params)

// planes are the data planes that have acceleration.
func planes() map[string]plane {
	return map[string]plane{
		"nftables": func(_ *testing.T, k *nft.Conn, ledger *nft.Ledger) (dataplane.Driver, *Params) {
			return nftables.New(nftables.Params{Kernel: k, Ledger: ledger, Beside: IsTable}), &Params{Ledger: ledger}
		},
		"iptables": func(t *testing.T, _ *nft.Conn, _ *nft.Ledger) (dataplane.Driver, *Params) {
			programs, err := kerneliptables.Installed(kerneliptables.NFT)
			if err != nil {
				t.Fatal(err)
			}
			k, err := kerneliptables.Open(kerneliptables.Config{Backend: kerneliptables.NFT, Programs: programs})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = k.Close() })
			d := iptables.New(iptables.Params{Kernel: k})
			return d, &Params{Wrote: func(g nft.Generation) { d.Beside(uint32(g)) }}
		},
	}
}

// TestPackets: with real packets, together with each data plane.
func TestPackets(t *testing.T) {
	for name, p := range planes() {
		t.Run(name, func(t *testing.T) { flowlab.Enter(t); testPackets(newPacketLab(t, p)) })
	}
}

// packetLab is a node whose Services are those of labServices.
type packetLab struct {
	*flowlab.Lab
	k     *nft.Conn
	w     *world
	plane plane
}

func newPacketLab(t *testing.T, p plane) *packetLab {
	t.Helper()
	l := &packetLab{Lab: flowlab.New(t), k: open(t), plane: p}
	l.w = &world{T: t, k: l.k}
	return l
}

// start is a complete start: probe, load, write. It returns what was written.
func (l *packetLab) start(threshold int) (*dataplanetest.Bed, int) {
	l.Helper()
	main, p := l.plane(l.T, l.k, &nft.Ledger{})
	p.Kernel, p.Flowtables, p.Links, p.Threshold = l.k, l.k.Flowtables, l.w.links, threshold
	d := New(main, *p)
	if _, err := d.Probe(l.Context()); err != nil {
		l.Fatal(err)
	}
	b := dataplanetest.NewBed(d, labView())
	b.View.Links, _ = l.w.links()
	b.Load(l)
	b.WantAll(labServices())
	done := b.Sync(l)
	if why := d.Status().Why; why != "" {
		l.Fatal(why)
	}
	if changed, err := d.Driver.Changed(l.Context()); changed || err != nil {
		l.Errorf("our own commits look like somebody else's: %v %v", changed, err)
	}
	return b, done.Operations
}

func testPackets(l *packetLab) {
	k, w, start := l.k, l.w, l.start
	start(20)
	var streams []flowlab.Stream
	for _, addr := range []string{"10.96.0.1:53", "[fd96::1]:53"} {
		for _, network := range []string{"tcp", "udp"} {
			s := l.Dial(network, addr)
			s.Ask(2) // a dozen packets, if some are sent twice
			if s.Offloaded() {
				l.Errorf("%s %s: taken over too soon", network, addr)
			}
			streams = append(streams, s)
		}
	}
	streams = append(streams, l.Dial("tcp", "10.2.0.1:30080")) // a NodePort, masqueraded
	for _, s := range streams {
		if !s.Fast() {
			l.Fatalf("%s %s: its packets still pass the forward hook", s.Network, s.Addr)
		}
	}
	for _, to := range [][2]string{{"tcp", "10.1.0.2:8080"}, {"udp", "10.1.0.2:8080"}, {"tcp", "[fd01::2]:8080"}, {"udp", "[fd01::2]:8080"},
		{"tcp", "10.96.0.9:53"}} { // past Services, and one that is opted out
		s := l.Dial(to[0], to[1])
		s.Ask(60)
		if s.Offloaded() {
			l.Errorf("%s %s is taken over", to[0], to[1])
		}
	}
	early := l.Dial("tcp", "10.96.0.4:53") // with a threshold of its own
	if early.Ask(4); !early.Offloaded() {
		l.Error("10.96.0.4 is not taken over after its own four packets")
	}

	if c, err := ReadCounts(l.Context(), k); err != nil || c.Taken != uint64(len(streams))+1 || c.Excluded != 0 {
		l.Errorf("%+v is counted of %d connections, %v", c, len(streams)+1, err)
	}
	if _, n := start(20); n != 0 {
		l.Errorf("a restart writes %d operations", n)
	}
	if s := streams[0]; !s.Fast() {
		l.Errorf("%s %s left the fast path at a restart", s.Network, s.Addr)
	}
	if _, n := start(100_000); n != 2 {
		l.Errorf("another threshold writes %d operations, want 2", n)
	}
	late := l.Dial("tcp", "10.96.0.1:53")
	if late.Ask(60); late.Offloaded() {
		l.Error("a new connection is taken over by the old threshold")
	}

	start(0)
	w.other = k
	w.want()
	for _, s := range streams[:4] {
		if !s.Slow() {
			l.Errorf("%s %s is on the fast path although it is off", s.Network, s.Addr)
		}
	}
}

func labView() model.NodeView {
	return model.NodeView{
		NodePortAddrs: []netip.Addr{netip.MustParseAddr("10.2.0.1")}, NodeAddrs: []netip.Addr{netip.MustParseAddr("10.2.0.1")}, MasqueradeBit: 14,
		Local: model.LocalDetector{Mode: model.DetectCIDR, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/24"), netip.MustParsePrefix("fd02::/64")}},
	}
}

func labServices() map[model.ServiceKey][]model.Frontend {
	out := map[model.ServiceKey][]model.Frontend{}
	add := func(i int, p model.Protocol, vip, end string, change func(*model.Frontend)) {
		a := netip.MustParseAddr(vip)
		f := model.Frontend{Key: model.FrontendKey{Family: model.FamilyOf(a), Protocol: p, Addr: a, Port: 53}, Kind: model.ClusterIP,
			Service: dataplanetest.Service(i), Port: p.String(), Verdict: model.Forward,
			Backends: []model.Backend{{Addr: netip.MustParseAddr(end), Port: 8080, Weight: 1}}}
		change(&f)
		out[f.Service] = append(out[f.Service], f)
	}
	for _, p := range []model.Protocol{model.TCP, model.UDP} {
		add(1, p, "10.96.0.1", "10.1.0.1", func(*model.Frontend) {})
		add(2, p, "fd96::1", "fd01::1", func(*model.Frontend) {})
	}
	add(3, model.TCP, "10.2.0.1", "10.1.0.1", func(f *model.Frontend) {
		f.Kind, f.Key.Addr, f.Key.Port, f.Masquerade = model.NodePort, netip.Addr{}, 30080, true
	})
	add(4, model.TCP, "10.96.0.4", "10.1.0.1", func(f *model.Frontend) { f.Offload = 4 })
	add(9, model.TCP, "10.96.0.9", "10.1.0.2", func(f *model.Frontend) { f.Offload = -1 })
	return out
}
