package property

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/ipvs"
	"github.com/fairlead/fairlead/internal/dataplane/nftables"
	"github.com/fairlead/fairlead/internal/dataplane/userspace"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/inspect"
	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/mailbox"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
	"github.com/fairlead/fairlead/test/patience"
	"github.com/fairlead/fairlead/test/proof"
)

var pairs = flag.Int("trace.pairs", 1750, "how many pairs of a source and a destination are traced and sent, in all modes together")

// pairsOfWorld is the number of pairs in one random world.
const pairsOfWorld = 50

// TestTraceAgreesWithPackets checks, for random sources and destinations in random worlds, that the result of trace, which sends no packet, matches
// what the kernel does with a packet.
func TestTraceAgreesWithPackets(t *testing.T) {
	opens := map[string]func(*testing.T) plane{
		nftables.Name:     byNFTables,
		"iptables-nft":    func(t *testing.T) plane { return byIPTables(t, kernel.NFT) },
		"iptables-legacy": func(t *testing.T) plane { return byIPTables(t, kernel.Legacy) },
		ipvs.Name:         byIPVS,
		userspace.Name:    byUserspace,
	}
	for name, open := range opens {
		t.Run(name, func(t *testing.T) {
			outcomes := map[string]int{}
			for n := range max(1, *pairs/pairsOfWorld/len(opens)) {
				t.Run(fmt.Sprint(n), func(t *testing.T) { traced(t, uint64(n), open(t), outcomes) })
			}
			t.Logf("%v", outcomes)
			proof.Count(t, total(outcomes), "random packets whose fate trace foretold")
			for _, o := range []string{"forward client", "forward node", "reject", "drop", "none"} {
				if outcomes[o] == 0 && len(outcomes) > 0 && !t.Failed() {
					t.Errorf("no pair of sort %q: %v", o, outcomes)
				}
			}
		})
	}
}

func total(outcomes map[string]int) (n int) {
	for _, count := range outcomes {
		n += count
	}
	return n
}

func traced(t *testing.T, seed uint64, p plane, outcomes map[string]int) {
	wire := openWires(t)
	r := rand.New(rand.NewPCG(seed, 14))
	w := newWorld(r)
	w.host = &model.HostAddrs{Addrs: []model.HostAddr{{Prefix: netip.MustParsePrefix(nodeV4 + "/24"), Link: "in"}, {Prefix: netip.MustParsePrefix(nodeV6 + "/64"), Link: "in"}}}
	if seed%2 == 0 {
		w.cidrs = &model.ServiceCIDRs{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/24"), netip.MustParsePrefix("fd00::100/120")}}
	}
	for i := range keys {
		w.services[i], w.slices[i] = w.randomService(i), w.randomSlice(i)
		w.slices[keys+i] = w.randomSlice(keys + i) // each Service has at least one, in either family
		w.slices[keys+i].Service = key(i)
		w.services[i].Extras.Relay.KeepSource = p.relays && i%3 == 0
	}
	w.settleDown()
	e, caps := settled(t, &p, w.all())
	for n := range pairsOfWorld {
		from, to := w.pair(uint16(1024 + n))
		var said inspect.Trace
		q := p.question(to.text(), from.Addr(), caps)
		var err error
		q.Subject, err = inspect.ParseSubject(q.Text, "")
		check(t, err)
		check(t, e.Inspect(t.Context(), func(v engine.View) { said, err = inspect.Simulate(q, v) }))
		check(t, err)
		sent := segment{protocol: byte(to.protocol), from: from, to: to.at, flags: syn, number: uint16(1 + n)}
		seen := wire.send(t, sent)
		if p.relays {
			seen = wire.relayed(t, sent, seen, &said)
		}
		if bad := disagrees(&said, from.Addr(), to.at, seen); bad != "" {
			t.Errorf("seed %d: from %s to %s: %s\nseen: %+v\nsaid: %+v", seed, from, to.text(), bad, seen, said)
		}
		if p.scheduler != "" && strings.Contains(fmt.Sprint(said.Steps), "at random") {
			t.Errorf("seed %d: a scheduler chooses, and not chance: %+v", seed, said)
		}
		outcomes[strings.TrimSpace(said.Outcome+" "+said.Source)]++
	}
}

// settled returns an engine that has applied everything to the kernel.
func settled(t *testing.T, p *plane, all []model.Event) (*engine.Engine, dataplane.Caps) {
	t.Helper()
	caps, err := p.driver.Probe(t.Context())
	check(t, err)
	mail := mailbox.New()
	done := make(chan struct{}, 1)
	e := engine.New(engine.Params{Driver: p.driver, Families: caps.Families, Mailbox: mail, NodeName: "n", Sources: []string{"test"}, MaxBackends: caps.MaxBackends,
		View: policy.ViewInputs{NodePortPrimary: true, MasqueradeBit: 14, Relayed: p.relays,
			ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00::1000/116")}},
		Unsupported: caps.Unsupported, OneList: caps.OneList,
		OnTurn: func(tu *engine.Turn) {
			if !tu.Waits && tu.Complete && tu.Err == nil && tu.Pending == 0 {
				select {
				case done <- struct{}{}:
				default:
				}
			}
		}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	mail.Put(all...)
	select {
	case <-done:
	case <-time.After(patience.Of(30 * time.Second)):
		t.Fatal("nothing is in sync")
	}
	return e, caps
}

type target struct {
	at       netip.AddrPort
	protocol model.Protocol
}

func (d target) text() string { return d.at.String() + "/" + d.protocol.String() }

// pair returns a random client and a destination, in most cases one that a Service claims.
func (w *world) pair(port uint16) (netip.AddrPort, target) {
	v6too := w.r.IntN(3) == 0
	s := w.services[w.r.IntN(keys)]
	p := s.Ports[w.r.IntN(len(s.Ports))]
	to := target{protocol: p.Protocol}
	var list []netip.Addr
	for _, a := range slices.Concat(s.ClusterIPs, s.LoadBalancerIPs, s.ExternalIPs, s.ClusterIPs) {
		if a.Is6() == v6too {
			list = append(list, a)
		}
	}
	number := []uint16{p.Port, p.Port, p.Port, p.Port, 75, 8500, 81, cmp.Or(p.NodePort, 81)}[w.r.IntN(8)]
	to.at = netip.AddrPortFrom(list[w.r.IntN(len(list))], number)
	if p.NodePort > 0 && w.r.IntN(4) == 0 {
		to.at = netip.AddrPortFrom(netip.MustParseAddr(map[bool]string{true: nodeV6, false: nodeV4}[v6too]), p.NodePort)
	}
	pod := 1 + w.r.IntN(40)
	from := []netip.Addr{v4(10, 244, 0, pod), v4(10, 0, 5, 6), v4(10, 1, 0, 9), v4(192, 0, 2, 7)}
	if v6too {
		from = []netip.Addr{v6(0x1000 + pod), netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("fd01::9")}
	}
	return netip.AddrPortFrom(from[w.r.IntN(len(from))], port), to
}

// disagrees returns the difference between the observed packets and the trace; "" if there is none.
func disagrees(said *inspect.Trace, from netip.Addr, to netip.AddrPort, seen []segment) string {
	node := to.Addr() == netip.MustParseAddr(nodeV4) || to.Addr() == netip.MustParseAddr(nodeV6)
	switch {
	case len(seen) > 1:
		return "more than one packet"
	case len(seen) == 0 && said.Outcome == "drop":
		return ""
	case len(seen) == 0:
		return "nothing came out"
	case seen[0].refusal && seen[0].to.Addr() == from && (said.Outcome == "reject" || said.Outcome == "none" && node):
		return "" // no program listens at the node's own address
	case seen[0].refusal:
		return "it was refused"
	}
	got := seen[0]
	switch said.Outcome {
	case "none":
		if got.to == to && got.from.Addr() == from && !node {
			return ""
		}
		return "somebody acted on it"
	case "forward":
		if !slices.Contains(said.Targets, got.to.String()) && !(got.to.Port() == to.Port() && slices.Contains(said.Targets, got.to.Addr().String())) {
			return "it went to somebody else"
		}
		if said.Source == "either" && len(said.Targets) == 1 {
			return "one target leaves no doubt about the source"
		}
		kept := got.from.Addr() == from
		want := said.Source == "client" || said.Source == "either" && got.to.Addr() != from
		if kept != want {
			return "its source is another one"
		}
		if !kept && got.from.Addr() != netip.MustParseAddr(nodeV4) && got.from.Addr() != netip.MustParseAddr(nodeV6) {
			return "its source is none of the node's"
		}
		return ""
	}
	return "it was forwarded"
}
