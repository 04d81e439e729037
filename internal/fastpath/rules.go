package fastpath

import (
	"context"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// takenAfter is after how many packets a connection is taken over: its handshake has passed the rules then.
const takenAfter = 6

func table(f *family) nft.TableRef {
	if f.v6 {
		return nft.TableRef{Family: nft.IPv6, Name: "test"}
	}
	return nft.TableRef{Family: nft.IPv4, Name: "test"}
}

// write translates the service's address, and the client's, and takes connections over.
func write(ctx context.Context, k nft.Kernel, f *family) error {
	t := table(f)
	var b nft.Batch
	b.NewTable(t, nil)
	b.NewFlowtable(nft.Flowtable{Ref: t.Set("f"), Devices: []string{"c0", "s0"}, Counter: true})
	chain := func(name string, hook nft.Hook, exprs ...nft.Expr) {
		hook.Policy = nft.PolicyAccept
		b.NewChain(nft.ChainSpec{Ref: t.Chain(name), Hook: &hook})
		b.NewRule(nft.RuleSpec{Chain: t.Chain(name), Exprs: exprs})
	}
	to := f.server.Addr().AsSlice()
	port := nft.Word(len(to) / 4)
	chain("pre", nft.Hook{Type: "nat", Num: nft.HookPrerouting, Priority: -100}, nft.DestAddr(t.Family, nft.Word(0)), nft.Equal(nft.Word(0), f.service.Addr().AsSlice()),
		nft.Immediate(nft.Word(0), to), nft.Immediate(port, binary.BigEndian.AppendUint16(nil, serverPort)), nft.DNAT(nft.NATSpec{Family: t.Family, Addr: nft.Word(0), Proto: port}))
	chain("post", nft.Hook{Type: "nat", Num: nft.HookPostrouting, Priority: 100}, nft.Masquerade())
	chain("take", nft.Hook{Type: "filter", Num: nft.HookForward, Priority: 0}, nft.CtPackets(nft.Word(0)), nft.BigEndian(nft.Word(0), 8),
		nft.Cmp(unix.NFT_CMP_GT, nft.Word(0), binary.BigEndian.AppendUint64(nil, takenAfter)), nft.FlowOffload("f"), nft.CountPackets())
	chain("seen", nft.Hook{Type: "filter", Num: nft.HookForward, Priority: 100}, nft.CountPackets())
	if _, err := k.Commit(ctx, &b); err != nil {
		return fmt.Errorf("write the rules of the test: %w", err)
	}
	return nil
}

// counted reports how many connections were taken over, and how many packets have passed the forward hook.
func counted(ctx context.Context, k nft.Kernel, f *family) (taken, seen uint64, err error) {
	rules, err := k.Rules(ctx, table(f))
	for i := range rules {
		switch rules[i].Chain.Name {
		case "take":
			taken = rules[i].Counted()
		case "seen":
			seen = rules[i].Counted()
		}
	}
	return taken, seen, err
}
