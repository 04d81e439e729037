package nft

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// TestComments shows what people read: nft prints the comments of elements, rules, chains and tables, cut to its limit.
func TestComments(t *testing.T) {
	k, table := ownNetns(t), TableRef{IPv4, "t"}
	b := &Batch{}
	b.NewTable(table, Comment("the table"))
	b.NewSet(SetSpec{Ref: table.Set("s"), Key: []Part{Addr4}})
	b.NewChain(ChainSpec{Ref: table.Chain("c"), UserData: Comment("the chain")})
	b.NewRule(RuleSpec{Chain: table.Chain("c"), Exprs: verdict(Accept()), UserData: Comment("the rule")})
	b.AddElement(table.Set("s"), &Element{Key: []byte{10, 0, 0, 1}, UserData: Comment("ns/svc:http")})
	b.AddElement(table.Set("s"), &Element{Key: []byte{10, 0, 0, 2}, UserData: Comment(strings.Repeat("x", 300))})
	if _, err := k.Commit(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	got := nftTool(t, "", "list", "ruleset")
	for _, want := range []string{"the table", "the chain", "the rule", "ns/svc:http", strings.Repeat("x", 127)} {
		if !strings.Contains(got, `comment "`+want+`"`) {
			t.Errorf("no comment %q in %s", want, got)
		}
	}
}

// TestMoreRefusalsThanTheSocketHolds: the answer overflows the receive buffer, yet it is known to be a refusal.
func TestMoreRefusalsThanTheSocketHolds(t *testing.T) {
	k, table := ownNetns(t), TableRef{IPv4, "t"}
	b := &Batch{}
	b.NewTable(table, nil)
	const n = 20_000
	for i := range n {
		b.Tag(i)
		b.DelChain(table.Chain("absent"))
	}
	_, err := k.Commit(context.Background(), b)
	var be *BatchError
	if !errors.As(err, &be) || be.Errno != unix.ENOENT || be.Tags[0] != 0 || len(be.Tags) < 100 {
		t.Fatal(err)
	}
	// And the socket is good for more.
	b.Reset()
	b.NewTable(table, nil)
	if g, err := k.Commit(context.Background(), b); err != nil || g == 0 {
		t.Fatal(g, err)
	}
}

// TestFaulty: a fault before leaves nothing, one after leaves the batch applied but unacknowledged.
func TestFaulty(t *testing.T) {
	boom := errors.New("boom")
	for _, after := range []bool{false, true} {
		fake := NewFake()
		r := rand.New(rand.NewPCG(1, 2))
		k := &Faulty{Kernel: fake, OnCommit: RandomCommits(r, 1, Fault{Err: boom, After: after}), OnRead: func(string) error { return boom }}
		b := &Batch{}
		b.NewTable(TableRef{IPv4, "t"}, nil)
		if _, err := k.Commit(context.Background(), b); !errors.Is(err, boom) {
			t.Error(err)
		}
		if _, err := k.Tables(context.Background()); !errors.Is(err, boom) {
			t.Error(err)
		}
		tables, _ := fake.Tables(context.Background())
		if applied := len(tables) == 1; applied != after {
			t.Errorf("fault after=%v left %d tables", after, len(tables))
		}
	}
}

// TestRandomCommitsFailsItsShare within three standard deviations.
func TestRandomCommitsFailsItsShare(t *testing.T) {
	fail := RandomCommits(rand.New(rand.NewPCG(3, 4)), 0.1, Fault{Err: ErrNoAnswer})
	n := 0
	for range 10_000 {
		if fail(nil).Err != nil {
			n++
		}
	}
	if n < 910 || n > 1090 {
		t.Errorf("%d of 10000 failed", n)
	}
}

// TestCounter counts a commit of three operations, two of them elements, a refusal and two reads.
func TestCounter(t *testing.T) {
	ctx, table, k := context.Background(), TableRef{IPv4, "t"}, NewCounter(NewFake())
	b := &Batch{}
	b.NewTable(table, nil)
	b.NewSet(SetSpec{Ref: table.Set("s"), Key: []Part{Addr4}})
	for i := range byte(2) {
		b.AddElement(table.Set("s"), &Element{Key: []byte{10, 0, 0, i}})
	}
	_, err1 := k.Commit(ctx, b)
	bytes := b.Bytes()
	b.Expect = 99
	_, err2 := k.Commit(ctx, b)
	_, err3 := k.Tables(ctx)
	err4 := k.Elements(ctx, table.Set("s"), func(*Element) error { return nil })
	_, err5 := k.Generation(ctx)
	if err := errors.Join(err1, err3, err4, err5); err != nil || !errors.Is(err2, ErrGeneration) {
		t.Fatal(err, err2)
	}
	want := Counts{Reads: 2, Generation: 1, Commits: 2, Refused: 1, Operations: 8, Elements: 4, Bytes: uint64(2 * bytes), Rows: 2}
	if got := k.Counts(); got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestPrefixBounds(t *testing.T) {
	for prefix, want := range map[string][2]string{
		"10.9.2.5/23":   {"10.9.2.0", "10.9.3.255"},
		"0.0.0.0/0":     {"0.0.0.0", "255.255.255.255"},
		"192.0.2.1/32":  {"192.0.2.1", "192.0.2.1"},
		"2001:db8::/32": {"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"},
	} {
		first, last := PrefixBounds(netip.MustParsePrefix(prefix))
		if got := [2]string{first.String(), last.String()}; got != want {
			t.Errorf("%s: %v", prefix, got)
		}
	}
}

// FuzzDecode feeds the decoders what no kernel sends: they must neither panic nor loop.
func FuzzDecode(f *testing.F) {
	b := &Batch{}
	appendLayout(b, TableRef{IPv6, "t"})
	b.AddElement(SetRef{}, &Element{Key: []byte{1}, Verdict: Goto("x")})
	b.NewFlowtable(Flowtable{Devices: []string{"a"}})
	for i := range b.msgs {
		f.Add(b.messageAt(i).attrs())
	}
	f.Fuzz(func(t *testing.T, d []byte) {
		decodeTable(IPv4, d)
		decodeSet(IPv4, d)
		decodeChain(IPv4, d)
		decodeFlowtable(IPv4, d)
		NormalizeExprs(decodeRule(IPv4, d).Exprs)
		dec := elementDecoder{chains: map[string]string{}}
		_ = dec.list(d, func(*Element) error { return nil })
		for _, b := range [][]byte{d, slices.Concat(make([]byte, 3), d)} {
			_ = netlink.Each(b, func(m netlink.Message) { n := nlmsg{m}; n.ack(); n.Errno(); n.isNft(1) })
		}
	})
}
