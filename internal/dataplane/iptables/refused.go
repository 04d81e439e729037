package iptables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// explain converts the error of a restore to the error classes of the contract. After a failed
// restore the actual state is read again before anything else is
// written, unless it was read just before and nothing was written since.
func (d *Driver) explain(ctx context.Context, err error, p *plan, s *script) error {
	f, ops := p.family, p.batch
	var refused *iptables.RestoreError
	switch {
	case errors.Is(err, iptables.ErrMoved):
		return fmt.Errorf("apply: %w", dataplane.ErrConflict)
	case errors.As(err, new(*iptables.LockError)):
		return fmt.Errorf("apply %s: %w", f, err)
	}
	partial := d.since > 0
	if d.observer != nil {
		d.observer.RestoreFailed(f, partial)
	}
	if !errors.As(err, &refused) {
		d.doubt()
		return fmt.Errorf("apply %s: %w", f, err)
	}
	d.p.Log.Error("iptables-restore failed", "family", f.String(), "partial", partial, "program", refused.Program, "message", refused.Message,
		"line", refused.Text, "lines", len(s.blame)-1)
	switch {
	case refused.Busy():
		d.doubt()
		return fmt.Errorf("apply %s: %w", f, err)
	case refused.Denied() && (p.begun || refused.Committed > 0): // a family, or a table, was written before
		return fmt.Errorf("apply %s: %w: %w: %w", f, dataplane.ErrUnsupported, dataplane.ErrInPart, err)
	case refused.Denied():
		return fmt.Errorf("apply %s: %w: %w", f, dataplane.ErrUnsupported, err)
	case partial:
		d.doubt()
		return fmt.Errorf("apply %s: %w: %w", f, dataplane.ErrConflict, err)
	}
	if refused.Committed > 0 {
		d.doubt()
	}
	keys := named(refused, s, ops)
	if len(keys) == 0 {
		keys = d.blame(ctx, f, ops)
	}
	if len(keys) == 0 { // each rule is valid by itself, so no object is the cause
		d.doubt()
		return fmt.Errorf("apply %s: %w", f, err)
	}
	return &dataplane.InvalidError{Keys: keys, Err: err}
}

// named returns the objects whose lines the program named.
func named(refused *iptables.RestoreError, s *script, ops []dataplane.Op) []dataplane.Key {
	var keys []dataplane.Key
	if refused.Commit {
		return nil // the kernel rejected some line of the table, and x_tables does not report which
	}
	for _, n := range refused.Lines {
		if n < len(s.blame) && s.blame[n] >= 0 {
			keys = append(keys, ops[s.blame[n]].Key)
		}
	}
	return keys
}

// suspect is an operation that the kernel may have rejected.
type suspect struct {
	key   dataplane.Key
	rules []feature
}

// maxTrials bounds the runs of iptables-restore that search for the rejected objects: one
// object among 10 000 takes 27.
const maxTrials = 80

// blame finds the objects of a family that the kernel rejects when it does not report
// which. Their rules, without their jump targets, are written into a chain that
// no rule jumps to: all at first, then by halves.
func (d *Driver) blame(ctx context.Context, f model.Family, ops []dataplane.Op) []dataplane.Key {
	var all []suspect
	for i := range ops {
		if o := &ops[i]; o.Key.Family == f && o.Want != "" {
			if s := suspectOf(o); len(s.rules) > 0 {
				all = append(all, s)
			}
		}
	}
	trials := 0
	var bad []dataplane.Key
	var search func([]suspect)
	search = func(list []suspect) {
		if trials++; len(list) == 0 || trials > maxTrials || !d.refuses(ctx, f, list) {
			return
		}
		if len(list) == 1 {
			bad = append(bad, list[0].key)
			return
		}
		search(list[:len(list)/2])
		search(list[len(list)/2:])
	}
	search(all)
	return bad
}

func (d *Driver) refuses(ctx context.Context, f model.Family, list []suspect) bool {
	var rules []feature
	for _, s := range list {
		rules = append(rules, s.rules...)
	}
	var refused *iptables.RestoreError
	return errors.As(d.try(ctx, f, rules...), &refused) && !refused.Busy()
}

func suspectOf(o *dataplane.Op) suspect {
	ref, rule := chainOf(o.Key)
	s := suspect{key: o.Key}
	list := []string{rule}
	switch {
	case o.Key.Kind == kindBucket || rule == "" && o.Want == emptyBody:
		return s
	case rule == "":
		list = strings.Split(o.Want, "\n")
	}
	for _, r := range list {
		s.rules = append(s.rules, feature{table: ref.table, rule: withoutChain(r)})
	}
	return s
}

// withoutChain removes the jump target from a rule, if that is an owned chain.
func withoutChain(rule string) string {
	i := max(strings.LastIndex(rule, "-j KUBE-"), strings.LastIndex(rule, "-g KUBE-"))
	if i < 0 || strings.Contains(rule[i+3:], " ") {
		return rule
	}
	return strings.TrimSuffix(rule[:i], " ")
}
