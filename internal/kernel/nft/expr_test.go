package nft

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// exprCases are rules that the layout does not use, with what nft must print; the layout's own are in roundtrip_test.go.
var exprCases = []struct {
	text  string
	exprs []Expr
}{
	{"tcp dport 1000-2000 accept", e(MetaL4Proto(Word(0)), Equal(Word(0), []byte{6}), DestPort(Word(0)),
		Cmp(unix.NFT_CMP_GTE, Word(0), []byte{3, 232}), Cmp(unix.NFT_CMP_LTE, Word(0), []byte{7, 208}), SetVerdict(Accept()))},
	{"dnat to jhash ip saddr mod 4 seed 0x1 map @weights", e(SourceAddr(IPv4, Word(1)),
		Hash(HashSpec{Source: Word(1), Dest: Word(0), Bytes: 4, Modulus: 4, Seed: 1}), LookupMap("weights", Word(0), Word(0)),
		DNAT(NATSpec{Family: IPv4, Addr: Word(0)}))},
	{"fib saddr type local return", e(FibSourceType(Word(0)), Equal(Word(0), HostU32(unix.RTN_LOCAL)), SetVerdict(Return()))},
	{"ct direction original counter packets 0 bytes 0", e(ctDirectionOriginal(), Equal(Word(0), []byte{0}), CountPackets())},
	{`iifname "lo" accept`, e(Meta(unix.NFT_META_IIFNAME, Word(0)), Equal(Word(0), AppendIfName(nil, "lo")), SetVerdict(Accept()))},
	{"meta mark set 0x00000007", e(Immediate(Word(0), HostU32(7)), MetaSet(unix.NFT_META_MARK, Word(0)))},
	{"update @seen { ip saddr timeout 1m }", e(SourceAddr(IPv4, Word(0)), Update(UpdateSpec{Set: "seen", Key: Word(0), Timeout: time.Minute}))},
	{"ct packets > 20 counter packets 0 bytes 0", e(CtPackets(Word(0)), BigEndian(Word(0), 8),
		Cmp(unix.NFT_CMP_GT, Word(0), []byte{0, 0, 0, 0, 0, 0, 0, 20}), CountPackets())},
	{"ct status snat", e(Ct(unix.NFT_CT_STATUS, Word(0)), KeepBits(Word(0), 16), NotEqual(Word(0), HostU32(0)))},
}

func ctDirectionOriginal() Expr { return Ct(unix.NFT_CT_DIRECTION, Word(0)) }

// TestExpressions writes each rule, wants it back byte for byte, and wants nft to print it as meant.
func TestExpressions(t *testing.T) {
	for _, c := range exprCases {
		t.Run(c.text, func(t *testing.T) {
			k, ctx, table := ownNetns(t), context.Background(), TableRef{IPv4, "t"}
			b := &Batch{}
			b.NewTable(table, nil)
			b.NewSet(SetSpec{Ref: table.Set("weights"), Key: []Part{MarkPart}, Data: []Part{Addr4}})
			b.NewSet(SetSpec{Ref: table.Set("seen"), Key: []Part{Addr4}, Flags: SetDynamic | SetTimeout, Size: 9})
			b.NewChain(ChainSpec{Ref: table.Chain("c"), Hook: base("nat", HookPrerouting, -100)})
			rule := RuleSpec{Chain: table.Chain("c"), Exprs: c.exprs}
			b.NewRule(rule)
			if _, err := k.Commit(ctx, b); err != nil {
				t.Fatal(err)
			}
			rules, err := k.Rules(ctx, table)
			if err != nil || len(rules) != 1 || !rule.Matches(rules[0]) {
				t.Errorf("read back %v %x\nwritten %x", err, rules[0].Exprs, c.exprs)
			}
			if got := nftTool(t, "", "list", "chain", "ip", "t", "c"); !strings.Contains(got, c.text+"\n") {
				t.Errorf("nft prints %s", got)
			}
		})
	}
}

// TestCounted: what a rule has counted is read from its row.
func TestCounted(t *testing.T) {
	k, table := ownNetns(t), TableRef{IPv4, "t"}
	nftTool(t, "table ip t { chain c { ip daddr 10.0.0.1 counter packets 7 bytes 9 accept; counter packets 5 bytes 0; accept; }; }", "-f", "-")
	rules, err := k.Rules(t.Context(), table)
	if err != nil || len(rules) != 3 || rules[0].Counted() != 7 || rules[1].Counted() != 5 || rules[2].Counted() != 0 {
		t.Errorf("%v: %+v", err, rules)
	}
}

// TestNoTrack needs a hook of its own.
func TestNoTrack(t *testing.T) {
	k, table := ownNetns(t), TableRef{IPv6, "t"}
	b := &Batch{}
	b.NewTable(table, nil)
	b.NewChain(ChainSpec{Ref: table.Chain("raw"), Hook: base("filter", HookPrerouting, -300)})
	b.NewRule(RuleSpec{Chain: table.Chain("raw"), Exprs: e(NoTrack())})
	if _, err := k.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if got := nftTool(t, "", "list", "ruleset"); !strings.Contains(got, "notrack\n") {
		t.Errorf("no notrack in %s", got)
	}
}
