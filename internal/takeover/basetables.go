package takeover

import (
	"context"
	"errors"

	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// baseTables are those that the nf_tables programs of iptables make for their own:
// table ip nat with chains PREROUTING, INPUT, OUTPUT, POSTROUTING, and so on.
func (k Kernels) baseTables(ctx context.Context) ([]nft.TableRef, error) {
	if k.NFT == nil {
		return nil, nil
	}
	list, err := k.NFT.Tables(ctx)
	var out []nft.TableRef
	for i := range list {
		ref := list[i].Ref
		if ref.Family != nft.IPv4 && ref.Family != nft.IPv6 {
			continue
		}
		switch ref.Name {
		case "nat", "filter", "mangle":
			out = append(out, ref)
		}
	}
	return out, err
}

// dropEmpty deletes the tables of the nf_tables programs that hold nothing but
// empty built-in chains that accept: iptables makes them with its first rule and
// never takes them away. It follows a removal of chains from them. If somebody writes
// meanwhile it looks again, and gives up after some looks: an empty table does no harm.
func (k Kernels) dropEmpty(ctx context.Context, b kernel.Backend) error {
	if b != kernel.NFT || k.NFT == nil {
		return nil
	}
	const looks = 20 // each takes about a millisecond, as does the write of a neighbour
	for range looks {
		if err := k.dropEmptyOnce(ctx); !errors.Is(err, nft.ErrGeneration) {
			return err
		}
	}
	return nil
}

// dropEmptyOnce fails with nft.ErrGeneration if somebody has written since it looked.
func (k Kernels) dropEmptyOnce(ctx context.Context) error {
	g, err := k.NFT.Generation(ctx)
	if err != nil {
		return err
	}
	tables, err := k.baseTables(ctx)
	if err != nil {
		return err
	}
	batch := nft.Batch{Expect: g}
	for _, ref := range tables {
		empty, err := k.isEmpty(ctx, ref)
		if err != nil {
			return err
		}
		if empty {
			batch.DelTable(ref)
		}
	}
	if batch.Len() == 0 {
		return nil
	}
	_, err = k.NFT.Commit(ctx, &batch)
	return err
}

// isEmpty tells whether a table holds built-in chains only, without a rule and with
// the policy that lets everything through.
func (k Kernels) isEmpty(ctx context.Context, ref nft.TableRef) (bool, error) {
	chains, err := k.NFT.Chains(ctx, ref)
	if err != nil {
		return false, err
	}
	for i := range chains {
		if c := &chains[i]; c.Hook == nil || c.Hook.Policy != nft.PolicyAccept || c.Use > 0 {
			return false, nil
		}
	}
	sets, err := k.NFT.Sets(ctx, ref)
	if err != nil || len(sets) > 0 {
		return false, err
	}
	rules, err := k.NFT.Rules(ctx, ref)
	return len(rules) == 0, err
}
