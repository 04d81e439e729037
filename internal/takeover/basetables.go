package takeover

import (
	"context"
	"errors"
	"slices"

	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// baseTables are the tables that the nf_tables programs of iptables create for themselves:
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

// holdChains returns those of them that hold a chain which is not a base chain, in the backend nft; only such a table can be one that a removal of
// chains empties.
func (k Kernels) holdChains(ctx context.Context, b kernel.Backend) (out []nft.TableRef, err error) {
	if b != kernel.NFT {
		return nil, nil
	}
	tables, err := k.baseTables(ctx)
	if err != nil {
		return nil, err
	}
	for _, ref := range tables {
		chains, err := k.NFT.Chains(ctx, ref)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(chains, func(c nft.Chain) bool { return c.Hook == nil }) {
			out = append(out, ref)
		}
	}
	return out, nil
}

// dropEmpty deletes those of the tables which a removal of chains has emptied: they hold nothing but built-in chains of iptables, without a rule and
// with the policy accept. iptables makes them with its first rule and never removes them. An empty table that held no chains before may be an
// administrator's, and stays. If another program writes concurrently it retries, and stops after some attempts: an empty table does no harm.
func (k Kernels) dropEmpty(ctx context.Context, held []nft.TableRef) error {
	if len(held) == 0 {
		return nil
	}
	const looks = 20 // each takes about a millisecond, as does a write of another program
	for range looks {
		if err := k.dropEmptyOnce(ctx, held); !errors.Is(err, nft.ErrGeneration) {
			return err
		}
	}
	return nil
}

// dropEmptyOnce returns nft.ErrGeneration if another program has written since it read the tables.
func (k Kernels) dropEmptyOnce(ctx context.Context, held []nft.TableRef) error {
	g, err := k.NFT.Generation(ctx)
	if err != nil {
		return err
	}
	tables, err := k.baseTables(ctx) // some may be gone
	if err != nil {
		return err
	}
	batch := nft.Batch{Expect: g}
	for _, ref := range tables {
		if !slices.Contains(held, ref) {
			continue
		}
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

// builtIn reports whether a chain has the name that iptables uses for its hook.
func builtIn(c *nft.Chain) bool {
	names := [...]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}
	return c.Hook != nil && int(c.Hook.Num) < len(names) && c.Ref.Name == names[c.Hook.Num]
}

// isEmpty reports whether a table holds built-in chains only, without a rule and with the policy accept. The use count of a chain includes its rules.
func (k Kernels) isEmpty(ctx context.Context, ref nft.TableRef) (bool, error) {
	chains, err := k.NFT.Chains(ctx, ref)
	sets, setsErr := k.NFT.Sets(ctx, ref)
	used := func(c nft.Chain) bool { return !builtIn(&c) || c.Hook.Policy != nft.PolicyAccept || c.Use > 0 }
	return len(sets) == 0 && !slices.ContainsFunc(chains, used), errors.Join(err, setsErr)
}
