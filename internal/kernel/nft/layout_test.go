package nft

import (
	"time"

	"golang.org/x/sys/unix"
)

// The layout of testdata/layout.nft and layout6.nft, written with this package's own words: sets, chains and rules. Elements
// come from the text, by way of a dump.

const masqBit = 0x4000

// fields loads key parts into consecutive register words.
func fields(f Family, word int, loads ...func(Family, Reg) (Expr, int)) []Expr {
	var out []Expr
	for _, l := range loads {
		e, n := l(f, Word(word))
		out = append(out, e)
		word += n
	}
	return out
}

func saddr(f Family, r Reg) (Expr, int)   { return SourceAddr(f, r), f.AddrLen() / 4 }
func daddr(f Family, r Reg) (Expr, int)   { return DestAddr(f, r), f.AddrLen() / 4 }
func l4proto(_ Family, r Reg) (Expr, int) { return MetaL4Proto(r), 1 }
func dport(_ Family, r Reg) (Expr, int)   { return DestPort(r), 1 }
func ctDest(f Family, r Reg) (Expr, int)  { return CtOriginalDest(f, r), f.AddrLen() / 4 }
func ctPort(_ Family, r Reg) (Expr, int)  { return CtOriginalDestPort(r), 1 }

func slot(n uint32) func(Family, Reg) (Expr, int) {
	return func(_ Family, r Reg) (Expr, int) { return RandomSlot(r, n), 1 }
}

func exprs(lists ...[]Expr) []Expr {
	var out []Expr
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

func e(x ...Expr) []Expr { return x }

func dnatFrom(f Family, set string) []Expr {
	proto := Word(f.AddrLen() / 4)
	return e(LookupMap(set, Word(0), Word(0)), DNAT(NATSpec{Family: f, Addr: Word(0), Proto: proto}))
}

func markForMasq() []Expr {
	return e(MetaMark(Word(0)), SetBits(Word(0), masqBit), MetaSet(unix.NFT_META_MARK, Word(0)))
}

func ctNew() []Expr    { return ctHas(unix.NFT_CT_STATE, 8) }
func ctDNATed() []Expr { return ctHas(unix.NFT_CT_STATUS, 32) }

func ctHas(key, bit uint32) []Expr {
	return e(Ct(key, Word(0)), KeepBits(Word(0), bit), NotEqual(Word(0), HostU32(0)))
}

func verdict(v Verdict) []Expr { return e(SetVerdict(v)) }

func layoutSets(t TableRef) []SetSpec {
	a := Addr(t.Family)
	key := []Part{a, L4Proto, Port}
	eps := SetSpec{Key: []Part{a, L4Proto, Port, Slot}, Data: []Part{a, Port}, Typeof: true, Size: 65536}
	npEps := eps
	npEps.Key = []Part{L4Proto, Port, Slot}
	sets := []struct {
		name string
		spec SetSpec
	}{
		{"cluster-ips", SetSpec{Key: []Part{a}}},
		{"nodeport-ips", SetSpec{Key: []Part{a}}},
		{"pod-cidrs", SetSpec{Key: []Part{a}, Flags: SetInterval}},
		{"hairpin", SetSpec{Key: []Part{a, a, L4Proto, Port}}},
		{"services", SetSpec{Key: key, Verdicts: true}},
		{"nodeports", SetSpec{Key: []Part{L4Proto, Port}, Verdicts: true}},
		{"eps", eps},
		{"local-eps", eps},
		{"np-eps", npEps},
		{"no-endpoints", SetSpec{Key: key, Verdicts: true}},
		{"fw-guarded", SetSpec{Key: key}},
		{"fw-allowed", SetSpec{Key: []Part{a, L4Proto, Port, a}, Flags: SetInterval}},
		{"aff", SetSpec{Key: []Part{a, a, L4Proto, Port}, Data: []Part{a, Port},
			Flags: SetDynamic | SetTimeout, Timeout: 3 * time.Hour, Size: 65536}},
		{"aff-10800", SetSpec{Key: key}},
	}
	out := make([]SetSpec, 0, len(sets))
	for _, s := range sets {
		s.spec.Ref = t.Set(s.name)
		out = append(out, s.spec)
	}
	return out
}

// layoutChain is a chain with its rules.
type layoutChain struct {
	name  string
	hook  *Hook
	rules [][]Expr
}

func base(typ string, n HookNum, prio int32) *Hook {
	return &Hook{Type: typ, Num: n, Priority: prio, Policy: PolicyAccept}
}

func layoutChains(f Family) []layoutChain {
	return append(append(balancing(f), natting(f)...), filtering(f)...)
}

func draws(f Family, set string, n uint32, key ...func(Family, Reg) (Expr, int)) [][]Expr {
	draw := func(n uint32) []Expr {
		return exprs(fields(f, 0, append(key[:len(key):len(key)], slot(n))...), dnatFrom(f, set))
	}
	if n <= 2 {
		return [][]Expr{draw(n)}
	}
	var out [][]Expr
	for range 6 {
		out = append(out, draw(n))
	}
	return append(out, draw(n/2))
}

func balancing(f Family) []layoutChain {
	lb := func(set string, n uint32) [][]Expr { return draws(f, set, n, daddr, l4proto, dport) }
	np := func(n uint32) [][]Expr { return draws(f, "np-eps", n, l4proto, dport) }
	marked := func(chain string) [][]Expr { return [][]Expr{exprs(markForMasq(), verdict(Goto(chain)))} }
	return []layoutChain{
		{"lb-1", nil, lb("eps", 1)}, {"lb-2", nil, lb("eps", 2)}, {"lb-4", nil, lb("eps", 4)},
		{"np-2", nil, np(2)}, {"np-4", nil, np(4)},
		{"aff-4", nil, [][]Expr{
			exprs(fields(f, 0, saddr, daddr, l4proto, dport), dnatFrom(f, "aff")),
			verdict(Goto("lb-4")),
		}},
		{"ext-4", nil, marked("lb-4")}, {"npx-4", nil, marked("np-4")},
		{"xl-4-1", nil, append([][]Expr{
			exprs(fields(f, 0, saddr), e(InSet("pod-cidrs", Word(0))), verdict(Goto("lb-4"))),
			exprs(e(FibSourceType(Word(0)), Equal(Word(0), HostU32(unix.RTN_LOCAL))), markForMasq(), verdict(Goto("lb-4"))),
		}, lb("local-eps", 1)...)},
		{"reject-chain", nil, [][]Expr{
			e(MetaL4Proto(Word(0)), Equal(Word(0), []byte{unix.IPPROTO_TCP}), RejectReset()), e(RejectPort(f))}},
	}
}

func natting(f Family) []layoutChain {
	dispatch := [][]Expr{
		exprs(fields(f, 0, daddr), e(InSet("cluster-ips", Word(0))), fields(f, 0, saddr), e(NotInSet("pod-cidrs", Word(0))), markForMasq()),
		exprs(fields(f, 0, daddr, l4proto, dport), e(LookupVerdict("services", Word(0)))),
		exprs(fields(f, 0, daddr), e(InSet("nodeport-ips", Word(0))), fields(f, 0, l4proto, dport), e(LookupVerdict("nodeports", Word(0)))),
	}
	post := [][]Expr{
		e(MetaMark(Word(0)), KeepBits(Word(0), masqBit), NotEqual(Word(0), HostU32(0)),
			MetaMark(Word(0)), KeepBits(Word(0), ^uint32(masqBit)), MetaSet(unix.NFT_META_MARK, Word(0)), Masquerade()),
		exprs(ctDNATed(), fields(f, 0, saddr, daddr, l4proto, dport), e(InSet("hairpin", Word(0)), Masquerade())),
	}
	jump := [][]Expr{verdict(Jump("dispatch"))}
	learnJump := [][]Expr{exprs(ctNew(), ctDNATed(), verdict(Jump("aff-learn")))}
	return []layoutChain{
		{"dispatch", nil, dispatch},
		{"nat-prerouting", base("nat", HookPrerouting, -100), jump},
		{"nat-output", base("nat", HookOutput, -100), jump},
		{"nat-postrouting", base("nat", HookPostrouting, 100), post},
		{"aff-learn", nil, [][]Expr{learn(f, unix.IPPROTO_TCP), learn(f, unix.IPPROTO_UDP), learn(f, unix.IPPROTO_SCTP)}},
		{"aff-prerouting", base("filter", HookPrerouting, -90), learnJump},
		{"aff-output", base("filter", HookOutput, -90), learnJump},
	}
}

func learn(f Family, proto byte) []Expr {
	n := f.AddrLen() / 4
	return exprs(
		e(MetaL4Proto(Word(0)), Equal(Word(0), []byte{proto}), CountPackets()),
		fields(f, 0, ctDest, l4proto, ctPort), e(InSet("aff-10800", Word(0))),
		fields(f, 0, saddr, ctDest, l4proto, ctPort), fields(f, 2*n+2, daddr, dport),
		e(Update(UpdateSpec{Set: "aff", Key: Word(0), Data: Word(2*n + 2), Timeout: 3 * time.Hour})))
}

func filtering(f Family) []layoutChain {
	refuse := [][]Expr{exprs(ctNew(), verdict(Jump("refuse")))}
	return []layoutChain{
		{"fw-check", nil, [][]Expr{
			exprs(fields(f, 0, daddr, l4proto, dport, saddr), e(InSet("fw-allowed", Word(0))), verdict(Return())), verdict(Drop())}},
		{"fw-prerouting", base("filter", HookPrerouting, -110), [][]Expr{
			exprs(ctNew(), fields(f, 0, daddr, l4proto, dport), e(InSet("fw-guarded", Word(0))), verdict(Goto("fw-check")))}},
		{"refuse", nil, [][]Expr{
			exprs(fields(f, 0, daddr, l4proto, dport), e(LookupVerdict("no-endpoints", Word(0)))),
			exprs(fields(f, 0, daddr), e(InSet("cluster-ips", Word(0))), verdict(Goto("reject-chain")))}},
		{"filter-forward", base("filter", HookForward, -110), refuse},
		{"filter-input", base("filter", HookInput, -110), refuse},
		{"filter-output", base("filter", HookOutput, -90), refuse},
	}
}

// appendLayout adds sets, chains and rules of the layout to b: chains before the rules that jump to them.
func appendLayout(b *Batch, t TableRef) {
	b.NewTable(t, nil)
	for _, s := range layoutSets(t) {
		b.NewSet(s)
	}
	chains := layoutChains(t.Family)
	for _, c := range chains {
		b.NewChain(ChainSpec{Ref: t.Chain(c.name), Hook: c.hook})
	}
	for _, c := range chains {
		for _, r := range c.rules {
			b.NewRule(RuleSpec{Chain: t.Chain(c.name), Exprs: r})
		}
	}
}
