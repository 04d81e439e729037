package iptables

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// Compare implements dataplane.Driver. It has each chain listed once that an object is
// in, or leads from; a chain that only lines of several Services make up is looked
// through for those that are wanted.
func (d *Driver) Compare(ctx context.Context, want []dataplane.Object, differs func(dataplane.Key, string)) error {
	listed := map[chainRef][]string{}
	for i := range want {
		ref, rule := chainOf(want[i].Key)
		list, known := listed[ref]
		if !known {
			var err error
			if list, err = d.k.List(ctx, kernelFamily(ref.family), ref.table.String(), ref.chain); err != nil {
				return fmt.Errorf("compare: %w", err)
			}
			listed[ref] = list
		}
		if found := valueIn(list, &want[i], rule); found != want[i].Value {
			differs(want[i].Key, found)
		}
	}
	return nil
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
