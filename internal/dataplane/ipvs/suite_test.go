package ipvs

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// bed is one kernel, with a client for the Driver and one for another program.
type bed struct {
	nft, other nft.Kernel
	ipvs       ipvs.Kernel
	addrs      ipvs.Addresses
	beside     Sockets
}

func TestSuiteOnModel(t *testing.T) {
	dataplanetest.Run(t, func(t *testing.T) *dataplanetest.Subject {
		k, v := nft.NewFake(), ipvs.NewFake()
		s := subject(t, bed{k, k.Neighbour(), v, v, Sockets{k, v, v}})
		s.Poison = overlapping // which the kernel refuses in one order only
		return s
	})
}

func subject(t *testing.T, b bed) *dataplanetest.Subject {
	t.Helper()
	faulty, rules := &ipvs.Faulty{Kernel: b.ipvs}, &nft.Faulty{Kernel: b.nft}
	drain := 15 * time.Minute
	s := &dataplanetest.Subject{
		Driver: New(Params{NFT: rules, IPVS: faulty, Addresses: b.addrs, Drain: drain, Look: Look{b.nft.(nft.Finder), b.ipvs, b.addrs}, Beside: b.beside}),
		Restart: func() dataplane.Driver {
			return New(Params{NFT: b.nft, IPVS: b.ipvs, Addresses: b.addrs, Drain: drain})
		},
		Families:   []model.Family{model.IPv4, model.IPv6},
		Edits:      edits(b),
		Touch:      func(t testing.TB) { dataplanetest.Touch(t, b.other) },
		Meddle:     func(t testing.TB) { dataplanetest.Meddle(t, b.other, tableRef(model.IPv4).Chain("guard")) },
		TellsApart: true,
		Poison:     unknownScheduler,
		Lingers: func(name string) bool {
			return strings.HasPrefix(name, "virtual server ") || strings.HasPrefix(name, "real server ") || strings.HasSuffix(name, " virtual-servers")
		},
	}
	s.FailApply = func(after bool) {
		faulty.OnWrite = func() ipvs.Fault {
			faulty.OnWrite = nil
			return ipvs.Fault{Err: errors.New("no memory, says the test"), After: after}
		}
	}
	s.InterruptLoad = func() {
		rules.OnRead = func(method string) error {
			if method == "Elements" {
				rules.OnRead = nil
				dataplanetest.Touch(t, b.other)
			}
			return nil
		}
	}
	if caps, err := s.Driver.Probe(t.Context()); err != nil || len(caps.Families) != 2 {
		t.Fatalf("probe: %v, %v", caps, err)
	}
	return s
}

// unknownScheduler is what no kernel has.
func unknownScheduler(f model.Family) *model.Frontend {
	fe := dataplanetest.ClusterIP(f, 4000, 2)
	fe.IPVSScheduler = "best"
	return &fe
}

// overlapping source ranges are what policy must never let through.
func overlapping(f model.Family) *model.Frontend {
	fe := dataplanetest.ClusterIP(f, 4000, 2)
	fe.Kind, fe.Guarded = model.LoadBalancer, true
	fe.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.1.0.0/16")}
	if f == model.IPv6 {
		fe.SourceRanges = []netip.Prefix{netip.MustParsePrefix("fd00::/16"), netip.MustParsePrefix("fd00:1::/32")}
	}
	return &fe
}

// edits are changes that another program makes to owned objects.
func edits(b bed) []dataplanetest.Edit {
	v4, v6 := tableRef(model.IPv4), tableRef(model.IPv6)
	plain, more := dataplanetest.ClusterIP(model.IPv4, 0, 1), dataplanetest.Every(model.IPv6)[4]
	key := func(f model.Frontend) ipvs.VirtualKey {
		return ipvs.VirtualKey{Addr: f.Key.Addr, Protocol: uint8(f.Key.Protocol), Port: f.Key.Port}
	}
	write := func(fill func(b *nft.Batch)) func(testing.TB) {
		return func(t testing.TB) { t.Helper(); dataplanetest.Commit(t, b.other, fill) }
	}
	does := func(err func(t testing.TB) error) func(testing.TB) {
		return func(t testing.TB) {
			t.Helper()
			if err := err(t); err != nil {
				t.Fatal(err)
			}
		}
	}
	stray := ipvs.VirtualKey{Addr: plain.Key.Addr, Protocol: 6, Port: 4321}
	return []dataplanetest.Edit{
		{Name: "virtual server deleted", Do: does(func(t testing.TB) error { return b.ipvs.DelVirtual(t.Context(), key(plain)) })},
		{Name: "scheduler changed", Do: does(func(t testing.TB) error {
			return b.ipvs.PutVirtual(t.Context(), ipvs.Virtual{VirtualKey: key(plain), Scheduler: "lc"})
		})},
		{Name: "real server deleted", Do: does(func(t testing.TB) error { return b.ipvs.DelReal(t.Context(), key(more), more.Backends[0].AddrPort()) })},
		{Name: "weight changed", Do: does(func(t testing.TB) error {
			return b.ipvs.PutReal(t.Context(), key(more), ipvs.Real{At: more.Backends[0].AddrPort(), Weight: 77})
		})},
		{Name: "foreign real server", Beside: true, Do: does(func(t testing.TB) error {
			return b.ipvs.PutReal(t.Context(), key(plain), ipvs.Real{At: netip.MustParseAddrPort("203.0.113.9:99"), Weight: 1})
		})},
		{Name: "foreign virtual server on our device", Beside: true, Do: does(func(t testing.TB) error {
			return b.ipvs.PutVirtual(t.Context(), ipvs.Virtual{VirtualKey: stray, Scheduler: "rr"})
		})},
		{Name: "address removed", Do: does(func(t testing.TB) error { return b.addrs.Remove(t.Context(), plain.Key.Addr) })},
		{Name: "foreign address", Beside: true, Do: does(func(t testing.TB) error { return b.addrs.Add(t.Context(), netip.MustParseAddr("203.0.113.77")) })},
		{Name: "device removed", Do: does(func(t testing.TB) error { return b.addrs.RemoveDevice(t.Context()) })},
		{Name: "service deleted", Do: write(func(b *nft.Batch) { b.DelElement(v4.Set("services"), &nft.Element{Key: vipKey(plain.Key)}) })},
		{Name: "service diverted", Do: write(func(b *nft.Batch) {
			b.DelElement(v4.Set("services"), &nft.Element{Key: vipKey(plain.Key)})
			b.AddElement(v4.Set("services"), &nft.Element{Key: vipKey(plain.Key), Verdict: nft.Jump(chainReject)})
		})},
		{Name: "our account lost", Do: write(func(b *nft.Batch) { b.FlushSet(v6.Set("virtual-servers")) })},
		{Name: "foreign rule in front", Do: write(func(b *nft.Batch) {
			b.NewRule(nft.RuleSpec{Chain: v4.Chain("dispatch"), Exprs: []nft.Expr{nft.SetVerdict(nft.Drop())}, First: true})
		})},
		{Name: "chain flushed", Do: write(func(b *nft.Batch) { b.FlushChain(v6.Chain("nat-postrouting")) })},
		{Name: "foreign chain", Beside: true, Do: write(func(b *nft.Batch) { b.NewChain(nft.ChainSpec{Ref: v4.Chain("mine")}) })},
		{Name: "foreign set", Beside: true, Do: write(func(b *nft.Batch) { b.NewSet(nft.SetSpec{Ref: v6.Set("mine"), Key: []nft.Part{nft.Port}}) })},
		{Name: "table deleted", Do: write(func(b *nft.Batch) { b.DelTable(v4) })},
		{Name: "table of a later layout", Do: write(func(b *nft.Batch) {
			b.DelTable(v6)
			b.NewTable(v6, nft.Comment("fairlead-ipvs layout 7"))
		})},
	}
}
