package iptables

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// Probe implements dataplane.Driver: for each family it makes a chain with every
// match and target that the driver may write, and deletes it. A family that fails is not
// served; if none is left the error says what is missing.
func (d *Driver) Probe(ctx context.Context) (dataplane.Caps, error) {
	caps := manners()
	d.k, d.own = d.p.Kernel, nil // not as an earlier Probe read it
	if ok, err := d.probeAll(ctx); err != nil {
		return caps, err
	} else if ok {
		for _, f := range bothFamilies {
			if d.serves(f) {
				caps.Families = append(caps.Families, f)
			}
		}
		caps.Notes = append(caps.Notes, d.ownNotes()...)
		return caps, nil
	}
	var problems []error
	for _, f := range bothFamilies {
		if !d.serves(f) {
			continue
		}
		if err := d.probeFamily(ctx, f); err != nil {
			if !errors.Is(err, dataplane.ErrUnsupported) {
				return caps, fmt.Errorf("probe iptables: %w", err)
			}
			problems = append(problems, err)
			caps.Notes = append(caps.Notes, fmt.Sprintf("%s is not served: %v", f, err))
			continue
		}
		caps.Families = append(caps.Families, f)
	}
	if len(caps.Families) == 0 {
		return caps, errors.Join(problems...)
	}
	d.served(caps.Families)
	if !d.cluster {
		caps.Notes = append(caps.Notes, "consistent hash falls back to session affinity: the kernel lacks the match cluster (CONFIG_NETFILTER_XT_MATCH_CLUSTER)")
	}
	note, err := d.probeCounters(ctx)
	if err != nil {
		return caps, fmt.Errorf("probe iptables: %w", err)
	}
	if note != "" {
		caps.Notes = append(caps.Notes, note)
	}
	note, err = d.readBack(ctx)
	if note != "" {
		caps.Notes = append(caps.Notes, note)
	}
	caps.Notes = append(caps.Notes, d.ownNotes()...)
	return caps, err
}

// manners are how the engine should use the driver. It does not cut its work up:
// x_tables replaces the whole table with each write, and for nf_tables Apply cuts by
// what its programs take. It pauses after a write, so that writes take a sixteenth
// of the time at most: the cost of iptables-restore grows with what exists, and changes that arrive
// in the pause are part of the next write. A single change is written at once.
func manners() dataplane.Caps { return dataplane.Caps{ChunkOps: math.MaxInt32, Pace: 16} }

// probeAll tries everything at once, and nearly every kernel can: x_tables
// programs copy the whole table in each run, so that on a restart with 10 000
// Services one feature after another would cost as much as everything else.
func (d *Driver) probeAll(ctx context.Context) (bool, error) {
	counts := d.p.Counters != nil
	if counts && d.ensureCounters() != nil {
		return false, nil
	}
	d.cluster, d.counts = true, counts
	learned := dialect{}
	for _, f := range bothFamilies {
		if !d.serves(f) {
			continue
		}
		err := d.tryAndRead(ctx, f, d.sampled(f), learned)
		if errors.As(err, new(*MisreadError)) {
			return false, fmt.Errorf("iptables: %w: %w", dataplane.ErrUnsupported, err)
		}
		if err != nil {
			return false, nil
		}
	}
	d.reads(learned)
	return true, nil
}

// byHash is the match without which consistent hash remembers clients instead.
func byHash(f model.Family) feature {
	p := picker{proto: model.TCP, family: f, hash: true, cluster: true}
	two := []model.Backend{{Addr: probeAddr(f), Port: 1, Weight: 1}, {Addr: probeAddr(f), Port: 2, Weight: 1}}
	return feature{table: nat, rule: p.rules(two, nil)[0]}
}

// probeTries bounds how often a run that failed for another reason is repeated.
const probeTries = 4

const probeChain = "KUBE-FAIRLEAD-PROBE"

// feature is a match or target that can be missing by itself.
type feature struct {
	table  table
	what   string
	option string // of the kernel's configuration
	rule   string
}

func features(f model.Family) []feature {
	p := picker{name: "probe", proto: model.TCP, family: f}
	b := model.Backend{Addr: probeAddr(f), Port: 80}
	return []feature{
		{nat, "the target DNAT", "CONFIG_NETFILTER_XT_NAT", strings.TrimPrefix("-p tcp"+p.dnat(&b), " ")},
		{nat, "the match statistic", "CONFIG_NETFILTER_XT_MATCH_STATISTIC", "-m statistic --mode random --probability " + share(1, 2)},
		{nat, "the match recent", "CONFIG_NETFILTER_XT_MATCH_RECENT", strings.TrimPrefix(p.remember(&b), " ")},
		{nat, "the match addrtype", "CONFIG_NETFILTER_XT_MATCH_ADDRTYPE", toLocal},
		{nat, "the match comment", "CONFIG_NETFILTER_XT_MATCH_COMMENT", comment("probe")[1:]},
		{nat, "the match mark", "CONFIG_NETFILTER_XT_MARK", "-m mark --mark 0x1/0x1"},
		{nat, "the target MARK", "CONFIG_NETFILTER_XT_MARK", "-j MARK --set-xmark 0x1/0x1"},
		{nat, "the target MASQUERADE with --random-fully", "CONFIG_NETFILTER_XT_TARGET_MASQUERADE", masquerade},
		{filter, "the match conntrack", "CONFIG_NETFILTER_XT_MATCH_CONNTRACK", isNew},
		{filter, "the target REJECT", "CONFIG_" + map[model.Family]string{model.IPv4: "IP", model.IPv6: "IP6"}[f] + "_NF_TARGET_REJECT", "-p tcp" + reject(model.TCP, f)},
	}
}

func (d *Driver) probeFamily(ctx context.Context, f model.Family) error {
	all := features(f)
	err := d.try(ctx, f, all...)
	if err == nil {
		err := d.try(ctx, f, byHash(f))
		if errors.As(err, new(*iptables.RestoreError)) {
			d.cluster, err = false, nil
		}
		return err
	}
	if errors.Is(err, iptables.ErrNoProgram) {
		return fmt.Errorf("iptables: %w: %w", dataplane.ErrUnsupported, err)
	}
	var refused *iptables.RestoreError
	if !errors.As(err, &refused) {
		return err
	}
	if refused.Denied() {
		return fmt.Errorf("iptables: %w: %w", dataplane.ErrUnsupported, err)
	}
	for _, one := range all {
		if alone := d.try(ctx, f, one); alone != nil {
			return fmt.Errorf("iptables: %w: the kernel lacks %s (%s): %w", dataplane.ErrUnsupported, one.what, one.option, alone)
		}
	}
	return err
}

func probeAddr(f model.Family) netip.Addr {
	if f == model.IPv6 {
		return netip.IPv6LinkLocalAllNodes()
	}
	return netip.AddrFrom4([4]byte{192, 0, 2, 1})
}

// try writes rules into a chain that no rule jumps to, and deletes it.
func (d *Driver) try(ctx context.Context, f model.Family, list ...feature) error {
	return d.tryAndRead(ctx, f, list, nil)
}

// tryAndRead also reads back what it has written, unless learned is nil.
func (d *Driver) tryAndRead(ctx context.Context, f model.Family, list []feature, learned dialect) error {
	in, out := newScript(), newScript()
	wrote := map[table][]string{}
	for _, t := range tables {
		var rules []string
		for _, one := range list {
			if one.table == t {
				rules = append(rules, one.rule)
			}
		}
		if len(rules) == 0 {
			continue
		}
		wrote[t] = rules
		ref, to := chainRef{f, t, probeChain}, chainRef{f, t, probeTarget}
		in.section(t, []*write{{ref: to, body: emptyBody, op: -1}, {ref: ref, body: body(rules), op: -1}}, nil, false)
		out.section(t, []*write{{ref: ref, op: -1, gone: true}, {ref: to, op: -1, gone: true}}, nil, false)
	}
	run := func(s *script) (err error) {
		for range probeTries { // a run that was killed proves nothing about the kernel
			_, err = d.k.Restore(ctx, iptables.Restore{Family: kernelFamily(f), Input: s.Bytes(), Commits: s.commits})
			if err == nil || errors.As(err, new(*iptables.RestoreError)) || ctx.Err() != nil {
				break
			}
		}
		return err
	}
	err := run(in)
	if err == nil && learned != nil {
		d.tryOwn(ctx, f, wrote)
		err = d.read(ctx, f, wrote, learned)
	}
	undo := run(out) // what is left after all, a Load finds
	if err != nil && undo != nil && undo.Error() == err.Error() {
		return err
	}
	return errors.Join(err, undo)
}
