package nftables

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Probe implements dataplane.Driver. For each family it creates a table with everything
// that the Driver may write, and deletes it in the same transaction, so that nothing
// remains even after a crash. A family that the kernel does not support is not served.
// If no family is left the error names the missing kernel features.
func (d *Driver) Probe(ctx context.Context) (dataplane.Caps, error) {
	caps := dataplane.Caps{MaxBackends: maxSlots, Inert: inert, DropsStrays: true}
	var problems []error
	for _, f := range bothFamilies {
		if !d.serves(f) {
			continue
		}
		if err := d.probeFamily(ctx, f); err != nil {
			if !Unsupported(err) {
				return caps, fmt.Errorf("probe nftables: %w", err)
			}
			problems = append(problems, err)
			caps.Notes = append(caps.Notes, fmt.Sprintf("%s is not served: %v", f, err))
			continue
		}
		caps.Families = append(caps.Families, f)
	}
	if len(caps.Families) == 0 {
		return caps, fmt.Errorf("nftables: %w: %w", dataplane.ErrUnsupported, errors.Join(problems...))
	}
	d.families = caps.Families
	return caps, nil
}

// Unsupported reports whether an error of nf_tables means that the kernel lacks a feature or a
// permission. Other errors may be temporary.
func Unsupported(err error) bool {
	for _, e := range [...]unix.Errno{unix.EPERM, unix.EACCES, unix.EOPNOTSUPP, unix.EAFNOSUPPORT,
		unix.EPROTONOSUPPORT, unix.ENOENT, unix.EINVAL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// feature is a kernel feature that can be missing independently, and its build option.
type feature struct{ what, option string }

func (d *Driver) probeFamily(ctx context.Context, f model.Family) error {
	p := probe{b: &nft.Batch{}, f: f, l: langOf(f), table: nft.TableRef{Family: nftFamily(f), Name: tableName + "-probe"}}
	p.feature("nf_tables "+p.table.Family.String(), "CONFIG_NF_TABLES")
	p.b.NewTable(p.table, nil)
	p.sets()
	p.chains()
	p.expressions()
	p.whole()
	p.b.DelTable(p.table)
	_, err := d.k.Commit(ctx, p.b)
	var refused *nft.BatchError
	if !errors.As(err, &refused) {
		return err
	}
	if refused.Errno == unix.EPERM {
		return fmt.Errorf("nf_tables denies access, CAP_NET_ADMIN is needed: %w", refused.Errno)
	}
	if len(refused.Tags) == 0 {
		return err
	}
	// The first failure causes failures of features that depend on it: name only the first.
	miss := p.features[refused.Tags[0]]
	return fmt.Errorf("the kernel lacks %s (%s): %w", miss.what, miss.option, refused.Errno)
}

// probe writes the temporary table.
type probe struct {
	b        *nft.Batch
	f        model.Family
	l        lang
	table    nft.TableRef
	features []feature
}

// feature records which feature the next operations need.
func (p *probe) feature(what, option string) {
	p.b.Tag(len(p.features))
	p.features = append(p.features, feature{what, option})
}

func (p *probe) sets() {
	for _, def := range ownSets() {
		spec := def.spec(p.f, def.parts()[0], 0)
		spec.Ref.Table = p.table
		p.feature(fmt.Sprintf("sets as %q needs them", def.name), "CONFIG_NF_TABLES, Linux 5.6 for intervals over concatenations")
		p.b.NewSet(spec)
	}
	p.feature("maps that packets fill", "CONFIG_NF_TABLES")
	clients := clientsSpec(p.f, probeMemory().clients())
	clients.Ref.Table = p.table
	p.b.NewSet(clients)
}

// probeMemory returns the memory of an example Service port.
func probeMemory() memory { return memory{"probe"} }

func (p *probe) chains() {
	for _, c := range fixedChains() {
		what, option := "chains", "CONFIG_NF_TABLES"
		if c.hook != nil {
			what = fmt.Sprintf("chains of type %s in hook %d", c.hook.Type, c.hook.Num)
		}
		if c.hook != nil && c.hook.Type == "nat" {
			option = "CONFIG_NFT_NAT, CONFIG_NF_NAT"
		}
		p.feature(what, option)
		p.b.NewChain(nft.ChainSpec{Ref: p.table.Chain(c.name), Hook: c.hook})
	}
}

// expressions writes one rule for each kind of expression, so that the error names the
// one that is missing.
func (p *probe) expressions() {
	inet := strings.ToUpper(p.f.String())
	for _, t := range [...]struct {
		feature
		chain string
		rule  rule
	}{
		{feature{"conntrack matches", "CONFIG_NFT_CT"}, "dispatch", nft.NewConnection()},
		{feature{"numgen", "CONFIG_NFT_NUMGEN"}, "dispatch", rule{nft.RandomSlot(nft.Word(0), 2)}},
		{feature{"jhash", "CONFIG_NFT_HASH"}, "dispatch", leaf{class: 1, hash: true}.draw(p.l, 1)},
		{feature{"fib", "CONFIG_NFT_FIB_" + inet}, "dispatch", nft.FromThisNode()}, // siderolabs/pkgs#951
		{feature{"dnat", "CONFIG_NFT_NAT"}, "nat-prerouting", leaf{class: 1}.draw(p.l, 1)},
		{feature{"masquerade", "CONFIG_NFT_MASQ"}, "nat-postrouting", rule{nft.Masquerade()}},
		{feature{"reject", "CONFIG_NFT_REJECT_" + inet}, "filter-forward", rule{nft.RejectPort(p.l.f)}},
		{feature{"map updates by packets", "CONFIG_NF_TABLES"}, "learn-prerouting", learnRules(p.l, probeMemory(), model.TCP, time.Hour)[0]},
		{feature{"maps that remember", "CONFIG_NFT_NAT"}, "nat-prerouting", recallRules(p.l, probeMemory(), pool{})[0]},
		{feature{"map deletions by packets", "CONFIG_NF_TABLES"}, "nat-prerouting", recallRules(p.l, probeMemory(), pool{})[1]},
	} {
		p.feature(t.what, t.option)
		p.b.NewRule(nft.RuleSpec{Chain: p.table.Chain(t.chain), Exprs: t.rule})
	}
}

// whole writes all rules of the fixed chains and of rejectChain.
func (p *probe) whole() {
	p.feature("part of Fairlead's rules", "no option known")
	p.b.NewChain(nft.ChainSpec{Ref: p.table.Chain(rejectChain)})
	view := model.NodeView{MasqueradeBit: 14, Local: model.LocalDetector{Mode: model.DetectCIDR}}
	for _, c := range fixedChains() {
		for _, r := range c.rules(p.l, &view) {
			p.b.NewRule(nft.RuleSpec{Chain: p.table.Chain(c.name), Exprs: r})
		}
	}
	for _, r := range rejectRules(p.l) {
		p.b.NewRule(nft.RuleSpec{Chain: p.table.Chain(rejectChain), Exprs: r})
	}
}
