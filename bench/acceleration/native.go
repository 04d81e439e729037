package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// oneWord adds the test that the agent has in a chain of its own to the nftables mode's chain in the forward hook. It uses netlink
// because the program nft cannot express this test. families is how many families have a flowtable with devices; the traffic is
// IPv4.
func oneWord(families int) func() error {
	return func() (err error) {
		k, err := nft.Open(nft.Config{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, k.Close()) }()
		const statusDNAT, threshold, atLeast = 1 << 5, 20, 0xfffffff0 // the values of internal/dataplane/offload
		low := nft.Word(0)
		if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
			low = nft.Word(1)
		}
		var b nft.Batch
		for _, f := range []nft.Family{nft.IPv4, nft.IPv6}[:families] {
			b.NewFlowtable(nft.Flowtable{Ref: nft.TableRef{Family: f, Name: "fairlead"}.Set("f"), Devices: []string{"nc", "ns"}, Counter: true})
		}
		t := nft.TableRef{Family: nft.IPv4, Name: "fairlead"}
		b.NewChain(nft.ChainSpec{Ref: t.Chain("take")})
		b.NewRule(nft.RuleSpec{Chain: t.Chain("take"), Exprs: []nft.Expr{nft.FlowOffload("f"), nft.CountPackets()}})
		b.NewRule(nft.RuleSpec{Chain: t.Chain("filter-forward"), Exprs: []nft.Expr{
			nft.CtPackets(nft.Word(0)), nft.KeepBits(low, atLeast), nft.NotEqual(low, nft.HostU32(0)),
			nft.CtPackets(nft.Word(0)), nft.BigEndian(nft.Word(0), 8), nft.Cmp(unix.NFT_CMP_GT, nft.Word(0), binary.BigEndian.AppendUint64(nil, threshold)),
			nft.Ct(unix.NFT_CT_STATUS, nft.Word(0)), nft.KeepBits(nft.Word(0), statusDNAT), nft.NotEqual(nft.Word(0), nft.HostU32(0)),
			nft.SetVerdict(nft.Jump("take"))}})
		if _, err := k.Commit(context.Background(), &b); err != nil {
			return fmt.Errorf("write the rules: %w", err)
		}
		return nil
	}
}
