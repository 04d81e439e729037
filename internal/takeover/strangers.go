package takeover

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Stranger is a rule, or a policy, of somebody else's table that can end a packet's way.
type Stranger struct {
	Where  string // "table inet calico, chain forward (filter, forward, priority 0)"
	Effect nft.Effect
}

const (
	// maxStrangers bounds what is reported, maxDepth how far jumps are followed.
	maxStrangers = 256
	maxDepth     = 8
)

// Strangers gives what can end a packet's way in tables of nftables that are not ours,
// those of iptables' nft backend included. Verdict maps are not followed.
func (k Kernels) Strangers(ctx context.Context) ([]Stranger, error) {
	if k.NFT == nil {
		return nil, nil
	}
	tables, err := k.NFT.Tables(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the tables of nftables: %w", err)
	}
	var out []Stranger
	for i := range tables {
		t := &tables[i]
		ip := t.Ref.Family == nft.Inet || t.Ref.Family == nft.IPv4 || t.Ref.Family == nft.IPv6
		if !ip || k.Planes.OurTable(t) || t.Flags&nft.TableDormant != 0 {
			continue
		}
		chains, err := k.NFT.Chains(ctx, t.Ref)
		if err != nil {
			return out, err
		}
		rules, err := k.NFT.Rules(ctx, t.Ref)
		if err != nil {
			return out, err
		}
		w := walk{rules: map[string][]nft.Effect{}, table: t.Ref.Name, ours: k.Planes.OurChain}
		for n := range rules {
			w.rules[rules[n].Chain.Name] = append(w.rules[rules[n].Chain.Name], nft.EffectOf(&rules[n]))
		}
		for n := range chains {
			w.base(&chains[n])
		}
		out = append(out, w.found...)
	}
	return out[:min(len(out), maxStrangers)], nil
}

// walk goes through one table.
type walk struct {
	rules map[string][]nft.Effect
	table string
	ours  func(table, chain string) bool
	where string
	found []Stranger
}

func (w *walk) base(c *nft.Chain) {
	if c.Hook == nil {
		return
	}
	hooks := [...]string{"prerouting", "input", "forward", "output", "postrouting"}
	if int(c.Hook.Num) >= len(hooks) {
		return
	}
	w.where = fmt.Sprintf("table %s, chain %s (%s, %s, priority %d)", c.Ref.Table, c.Ref.Name, c.Hook.Type, hooks[c.Hook.Num], c.Hook.Priority)
	w.chain(c.Ref.Name, nft.Effect{}, 0)
	if c.Hook.Policy == nft.PolicyDrop {
		w.found = append(w.found, Stranger{Where: w.where + ", its policy", Effect: nft.Effect{Ends: "drop"}})
	}
}

// chain follows jumps; what the jump was limited to holds for all that comes of it.
func (w *walk) chain(name string, by nft.Effect, depth int) {
	if depth > maxDepth || len(w.found) >= maxStrangers || w.ours != nil && w.ours(w.table, name) {
		return
	}
	for _, e := range w.rules[name] {
		if e.Daddr == nil {
			e.Daddr = by.Daddr
		}
		if e.Saddr == nil {
			e.Saddr = by.Saddr
		}
		if e.Dport == 0 {
			e.Dport = by.Dport
		}
		if e.Ends != "" {
			w.found = append(w.found, Stranger{Where: w.where, Effect: e})
		}
		for _, to := range e.Jumps {
			w.chain(to, e, depth+1)
		}
	}
}
