package takeover

import (
	"context"
	"errors"
	"fmt"
	"slices"

	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Stranger is a rule, or a policy, in a foreign table that can end a packet's way.
type Stranger struct {
	Where  string // "table inet calico, chain forward (filter, forward, priority 0)"
	Effect nft.Effect
}

const (
	// maxStrangers bounds what is reported, maxDepth how far jumps are followed.
	maxStrangers = 256
	maxDepth     = 8
)

// passBy is the effect of a rule that stands before the agent's jump and ends the traversal of the chain.
const passBy = "exempt from Fairlead's rules"

// Strangers returns the foreign rules that can end a packet's way, or let it bypass the agent's rules. It reads the tables of
// nftables that the agent does not own, those of iptables' nft backend included, and x_tables where its programs are among
// IPTables. Verdict maps are not followed. With an error it returns what could be read.
func (k Kernels) Strangers(ctx context.Context) ([]Stranger, error) {
	out, err := k.inNFT(ctx)
	for _, from := range k.IPTables {
		if from.Backend() == kernel.Legacy {
			list, failed := k.legacy(ctx, from)
			out, err = append(out, list...), errors.Join(err, failed)
		}
	}
	return out[:min(len(out), maxStrangers)], err
}

func (k Kernels) inNFT(ctx context.Context) ([]Stranger, error) {
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
		w := walk{rules: map[string][]nft.Effect{}, table: t.Ref.Name, at: IPTablesNFT, ours: k.Planes.OurChain}
		for n := range rules {
			w.rules[rules[n].Chain.Name] = append(w.rules[rules[n].Chain.Name], nft.EffectOf(&rules[n]))
		}
		for n := range chains {
			w.base(&chains[n])
		}
		out = append(out, w.found...)
	}
	return out, nil
}

// walk is a traversal of one table.
type walk struct {
	rules map[string][]nft.Effect
	table string
	at    Place
	ours  func(at Place, table, chain string) bool
	where string
	nat   bool // the chain translates: the agent does not translate a packet that leaves it early
	ahead bool // the agent's jump comes later in the base chain
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
	w.nat = c.Hook.Type == "nat"
	w.begin(c.Ref.Name, c.Hook.Policy == nft.PolicyDrop)
}

// begin traverses a base chain.
func (w *walk) begin(name string, drops bool) {
	last := -1 // index of the agent's last jump
	for i, e := range w.rules[name] {
		if slices.ContainsFunc(e.Jumps, w.isOurs) {
			last = i
		}
	}
	for i, e := range w.rules[name] {
		w.ahead = w.nat && i < last
		w.rule(e, 0)
	}
	if drops {
		w.found = append(w.found, Stranger{Where: w.where + ", its policy", Effect: nft.Effect{Ends: "drop"}})
	}
}

func (w *walk) isOurs(chain string) bool { return w.ours != nil && w.ours(w.at, w.table, chain) }

// rule records a rule's effect and follows its jumps. The limits of a jump hold for all rules that it reaches. A return leaves
// the base chain only if it stands there.
func (w *walk) rule(e nft.Effect, depth int) {
	switch {
	case len(w.found) >= maxStrangers:
		return
	case e.Ends != "":
		w.found = append(w.found, Stranger{Where: w.where, Effect: e})
	case w.ahead && (e.Stops == "accept" || e.Stops == "return" && depth == 0):
		e.Ends = passBy
		w.found = append(w.found, Stranger{Where: w.where, Effect: e})
	}
	for _, to := range e.Jumps {
		if depth >= maxDepth || w.isOurs(to) {
			continue
		}
		for _, next := range w.rules[to] {
			w.rule(narrowed(next, e), depth+1)
		}
	}
}

// narrowed returns a rule's effect with the limits of the rule that jumped to it.
func narrowed(e, by nft.Effect) nft.Effect {
	if e.Daddr == nil {
		e.Daddr = by.Daddr
	}
	if e.Saddr == nil {
		e.Saddr = by.Saddr
	}
	if e.Dport == 0 {
		e.Dport = by.Dport
	}
	return e
}
