package iptables

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
)

// Compare implements dataplane.Driver. It reads each chain once that is an object or
// contains one.
func (d *Driver) Compare(ctx context.Context, want []dataplane.Object, differs func(dataplane.Key, string)) error {
	listed := map[chainRef][]string{}
	for i := range want {
		ref, _ := chainOf(want[i].Key)
		listed[ref] = nil
	}
	read := d.printed
	if d.k.Backend() == iptables.NFT {
		read = d.listed
	}
	if err := read(ctx, listed); err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	for i := range want {
		ref, rule := chainOf(want[i].Key)
		if found := valueIn(listed[ref], &want[i], rule); found != want[i].Value {
			differs(want[i].Key, found)
		}
	}
	return nil
}

// listed reads the requested chains that exist, one by one: with nf_tables the
// programs ask the kernel for one chain, and to print a table takes seconds where there
// are a thousand Services.
func (d *Driver) listed(ctx context.Context, chains map[chainRef][]string) (err error) {
	for ref := range chains {
		if chains[ref], err = d.k.List(ctx, kernelFamily(ref.family), ref.table.String(), ref.chain); err != nil {
			return err
		}
	}
	return nil
}

// printed does the same by printing each table that contains a requested chain once: with x_tables the
// programs read the whole table to list one chain of it.
func (d *Driver) printed(ctx context.Context, chains map[chainRef][]string) error {
	asked := map[chainRef]bool{}
	for ref := range chains {
		asked[chainRef{family: ref.family, table: ref.table}] = true
	}
	for at := range asked {
		err := d.k.Save(ctx, kernelFamily(at.family), at.table.String(), func(line []byte) error {
			name, declares := declared(line)
			if !declares {
				name, _, _ = splitRule(line)
			}
			ref := chainRef{at.family, at.table, string(name)}
			list, wanted := chains[ref]
			switch {
			case !wanted:
			case declares:
				chains[ref] = []string{}
			default:
				chains[ref] = append(list, string(line))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// valueIn returns an object's value in a chain as it was listed; nil is a chain that does
// not exist. The driver writes the lines of a shared chain in a fixed order, without duplicates. A chain
// in which they are not was written by another program, and has drifted as a whole.
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
		return "in a chain that another program changed"
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

// inOrder reports whether the lines of a shared chain are in the order that the driver writes, without duplicates.
func inOrder(rules []string) bool {
	for i := 1; i < len(rules); i++ {
		if lineLess(rules[i-1], rules[i]) >= 0 {
			return false
		}
	}
	return true
}
