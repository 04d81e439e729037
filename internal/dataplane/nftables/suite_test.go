package nftables

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

func TestSuiteOnModel(t *testing.T) {
	dataplanetest.Run(t, func(t *testing.T) *dataplanetest.Subject {
		k := nft.NewFake()
		return subject(t, hands{k, k.Neighbour(), k}, nil)
	})
}

func TestSuiteOnKernel(t *testing.T) {
	dataplanetest.Run(t, func(t *testing.T) *dataplanetest.Subject {
		ns := ownNetns(t)
		return subject(t, hands{ns, ns.neighbour(t), ns.neighbour(t)}, func(t testing.TB) {
			t.Helper()
			if out := ns.nft(t, "list", "ruleset"); !strings.Contains(out, "table ip fairlead") {
				t.Errorf("nft lists no table of ours: %.200s", out)
			}
		})
	})
}

// hands are three connections to one kernel: the driver's, another program's, and the driver's for concurrent reads.
type hands struct{ k, other, beside nft.Kernel }

// subject wraps a kernel so that the suite can make it fail.
func subject(t *testing.T, of hands, checked func(testing.TB)) *dataplanetest.Subject {
	t.Helper()
	k, other := of.k, of.other
	faulty := &nft.Faulty{Kernel: k}
	s := &dataplanetest.Subject{
		Driver:     New(Params{Kernel: faulty, Finder: k.(nft.Finder), Surveyor: of.beside}),
		Restart:    func() dataplane.Driver { return New(Params{Kernel: k}) },
		Families:   []model.Family{model.IPv4, model.IPv6},
		Edits:      edits(other),
		Touch:      func(t testing.TB) { dataplanetest.Touch(t, other) },
		Meddle:     func(t testing.TB) { dataplanetest.Meddle(t, other, tableRef(model.IPv4).Chain("guard")) },
		TellsApart: true,
		Poison:     overlapping,
		Checked:    checked,
		Lingers: func(name string) bool {
			return strings.HasPrefix(name, "chain ")
		},
	}
	s.FailApply = func(after bool) {
		faulty.OnCommit = func(*nft.Batch) nft.Fault {
			faulty.OnCommit = nil
			if after {
				return nft.Fault{Err: nft.ErrNoAnswer, After: true}
			}
			return nft.Fault{Err: errors.New("no buffer space, says the test")}
		}
	}
	s.InterruptLoad = func() {
		faulty.OnRead = func(method string) error {
			if method == "Elements" {
				faulty.OnRead = nil
				dataplanetest.Touch(t, other)
			}
			return nil
		}
	}
	if caps, err := s.Driver.Probe(t.Context()); err != nil || len(caps.Families) != 2 {
		t.Fatalf("probe: %v, %v", caps, err)
	}
	return s
}

// overlapping source ranges are what policy must never let through (nftables.md E6).
func overlapping(f model.Family) *model.Frontend {
	fe := dataplanetest.ClusterIP(f, 4000, 2)
	fe.Kind, fe.Guarded = model.LoadBalancer, true
	fe.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.1.0.0/16")}
	if f == model.IPv6 {
		fe.SourceRanges = []netip.Prefix{netip.MustParsePrefix("fd00::/16"), netip.MustParsePrefix("fd00:1::/32")}
	}
	return &fe
}

// edits are changes of other programs to the owned tables.
func edits(k nft.Kernel) []dataplanetest.Edit {
	v4, v6 := tableRef(model.IPv4), tableRef(model.IPv6)
	plain := dataplanetest.ClusterIP(model.IPv4, 0, 1)
	id := string(appendID(nil, plain.Key))
	key, shard := appendKey(nil, identVIP, id), shardNames[shardOf(id)]
	write := func(fill func(b *nft.Batch)) func(testing.TB) {
		return func(t testing.TB) { dataplanetest.Commit(t, k, fill) }
	}
	hook := &nft.Hook{Type: "filter", Num: nft.HookInput, Priority: 7, Policy: nft.PolicyAccept}
	drop := []nft.Expr{nft.SetVerdict(nft.Drop())}
	return []dataplanetest.Edit{
		{Name: "frontend deleted", Do: write(func(b *nft.Batch) {
			b.DelElement(v4.Set("services"), &nft.Element{Key: key})
		})},
		{Name: "frontend diverted", Do: write(func(b *nft.Batch) {
			b.DelElement(v4.Set("services"), &nft.Element{Key: key})
			b.AddElement(v4.Set("services"), &nft.Element{Key: key, Verdict: nft.Drop()})
		})},
		{Name: "all slots flushed", Do: write(func(b *nft.Batch) { b.FlushSet(v6.Set("eps-1")) })},
		{Name: "foreign slots", Beside: true, Do: write(func(b *nft.Batch) {
			for _, n := range []uint32{9, 70_000} {
				b.AddElement(v4.Set(shard), &nft.Element{Key: nft.AppendSlot(key[:len(key):len(key)], n), Data: []byte{10, 0, 0, 1, 0, 80, 0, 0}})
			}
		})},
		{Name: "foreign pod range", Do: write(func(b *nft.Batch) {
			for _, e := range nft.PrefixElements(netip.MustParsePrefix("172.16.0.0/12")) {
				b.AddElement(v4.Set("pod-cidrs"), &e)
			}
		})},
		{Name: "foreign rule in front", Do: write(func(b *nft.Batch) {
			b.NewRule(nft.RuleSpec{Chain: v4.Chain("dispatch"), Exprs: drop, First: true})
		})},
		{Name: "chain flushed", Do: write(func(b *nft.Batch) { b.FlushChain(v4.Chain(leafOf(dataplanetest.Every(model.IPv4)[2]))) })},
		{Name: "rule deleted", Do: func(t testing.TB) { dropRule(t, k, v6, "refuse", 1) }},
		{Name: "foreign chains", Beside: true, Do: write(func(b *nft.Batch) {
			b.NewChain(nft.ChainSpec{Ref: v4.Chain("mine")})
			b.NewChain(nft.ChainSpec{Ref: v4.Chain("mine-input"), Hook: hook})
			b.NewRule(nft.RuleSpec{Chain: v4.Chain("mine-input"), Exprs: []nft.Expr{nft.SetVerdict(nft.Jump("mine"))}})
			b.NewRule(nft.RuleSpec{Chain: v4.Chain("mine"), Exprs: drop})
		})},
		{Name: "foreign set", Beside: true, Do: write(func(b *nft.Batch) {
			b.NewSet(nft.SetSpec{Ref: v6.Set("mine"), Key: []nft.Part{nft.Port}})
		})},
		{Name: "foreign rules with a set", Do: write(func(b *nft.Batch) {
			b.NewSet(nft.SetSpec{Ref: v6.Set("theirs"), Key: []nft.Part{nft.L4Proto, nft.Port}, Verdicts: true})
			b.NewChain(nft.ChainSpec{Ref: v6.Chain("theirs")})
			use := []nft.Expr{nft.MetaL4Proto(nft.Word(0)), nft.DestPort(nft.Word(1)), nft.LookupVerdict("theirs", nft.Word(0))}
			b.NewRule(nft.RuleSpec{Chain: v6.Chain("theirs"), Exprs: use})
			b.NewRule(nft.RuleSpec{Chain: v6.Chain("refuse"), Exprs: use})
			b.AddElement(v6.Set("theirs"), &nft.Element{Key: []byte{6, 0, 0, 0, 0, 80, 0, 0}, Verdict: nft.Goto(rejectChain)})
		})},
		{Name: "table deleted", Do: write(func(b *nft.Batch) { b.DelTable(v4) })},
		{Name: "table of a later layout", Do: write(func(b *nft.Batch) {
			b.DelTable(v6)
			b.NewTable(v6, nft.Comment("fairlead layout 7"))
			b.NewSet(nft.SetSpec{Ref: v6.Set("eps-1"), Key: []nft.Part{nft.Port}})
			b.NewChain(nft.ChainSpec{Ref: v6.Chain("unheard-of"), Hook: hook})
		})},
		{Name: "set of another type", Do: write(func(b *nft.Batch) {
			b.DelTable(v4)
			b.NewTable(v4, nft.Comment(markText+tableValue))
			b.NewSet(nft.SetSpec{Ref: v4.Set("services"), Key: []nft.Part{nft.Port}})
		})},
		{Name: "hook moved", Do: write(func(b *nft.Batch) {
			b.DelTable(v6)
			b.NewTable(v6, nft.Comment(markText+tableValue))
			b.NewChain(nft.ChainSpec{Ref: v6.Chain("nat-output"), Hook: hook})
		})},
	}
}

// leafOf names the chain of a plain Frontend.
func leafOf(fe model.Frontend) string {
	l := leaf{class: classOf(len(fe.Backends)), masquerade: fe.Masquerade, shard: uint8(shardOf(appendID(nil, fe.Key)))}
	return l.name()
}

// dropRule deletes the n-th rule of a chain.
func dropRule(t testing.TB, k nft.Kernel, table nft.TableRef, chain string, n int) {
	t.Helper()
	rules, err := k.Rules(t.Context(), table)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rules {
		if rules[i].Chain.Name == chain {
			if n--; n < 0 {
				dataplanetest.Commit(t, k, func(b *nft.Batch) { b.DelRule(rules[i].Chain, rules[i].Handle) })
				return
			}
		}
	}
	t.Fatalf("chain %s has too few rules", chain)
}
