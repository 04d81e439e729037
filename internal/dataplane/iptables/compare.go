package iptables

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// Compare implements dataplane.Driver. It has each table printed once that an object is
// in, or leads from: a program that lists one chain costs as much, and there are dozens
// of chains. Of what is printed only these chains are kept.
func (d *Driver) Compare(ctx context.Context, want []dataplane.Object, differs func(dataplane.Key, string)) error {
	listed := map[chainRef][]string{}
	for i := range want {
		ref, _ := chainOf(want[i].Key)
		listed[ref] = nil
	}
	for _, f := range [...]model.Family{model.IPv4, model.IPv6} {
		for _, t := range tables {
			if err := d.printed(ctx, f, t, listed); err != nil {
				return fmt.Errorf("compare: %w", err)
			}
		}
	}
	for i := range want {
		ref, rule := chainOf(want[i].Key)
		if found := valueIn(listed[ref], &want[i], rule); found != want[i].Value {
			differs(want[i].Key, found)
		}
	}
	return nil
}

// printed fills in those chains of one table that are asked for and there: rules, or an
// empty list.
func (d *Driver) printed(ctx context.Context, f model.Family, t table, listed map[chainRef][]string) error {
	asked := false
	for ref := range listed {
		asked = asked || ref.family == f && ref.table == t
	}
	if !asked {
		return nil
	}
	return d.k.Save(ctx, kernelFamily(f), t.String(), func(line []byte) error {
		name, declares := declared(line)
		if !declares {
			var ok bool
			if name, _, ok = splitRule(line); !ok {
				return nil
			}
		}
		ref := chainRef{f, t, string(name)}
		list, wanted := listed[ref]
		switch {
		case !wanted:
		case declares:
			listed[ref] = []string{}
		default:
			listed[ref] = append(list, string(line))
		}
		return nil
	})
}

// valueIn gives an object's value in a chain as it was listed; nil is a chain that is
// not there. The lines of a shared chain stand in an order of ours, each once: a chain
// in which they do not was written by somebody else, and is as a whole not what it should be.
func valueIn(list []string, o *dataplane.Object, rule string) string {
	rules := make([]string, 0, len(list))
	for _, l := range list {
		_, r, _ := splitRule([]byte(l))
		rules = append(rules, string(r))
	}
	switch {
	case list == nil:
		return ""
	case o.Key.Kind == kindJump:
		if slices.Contains(rules, rule) {
			return present
		}
		return ""
	case (o.Key.Kind == kindLine || o.Key.Kind == kindBucket) && !inOrder(rules):
		return "in a chain that somebody changed"
	case o.Key.Kind == kindLine:
		if slices.Contains(rules, rule) {
			return present
		}
		return ""
	case o.Key.Kind == kindBucket:
		return present
	}
	return body(rules)
}

// inOrder tells whether the lines of a shared chain stand as we write them.
func inOrder(rules []string) bool {
	for i := 1; i < len(rules); i++ {
		if lineLess(rules[i-1], rules[i]) >= 0 {
			return false
		}
	}
	return true
}
