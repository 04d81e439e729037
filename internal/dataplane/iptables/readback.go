package iptables

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// sampled returns a rule of every kind that the driver writes, for try.
func (d *Driver) sampled(f model.Family) []feature {
	var out []feature
	for t, rules := range d.samples(f) {
		for _, r := range rules {
			out = append(out, feature{table: t, rule: r})
		}
	}
	return out
}

// readBack determines how this iptables prints the driver's rules, where not all of them can be
// written: a kind that the kernel rejects is left to the Services that ask for it.
func (d *Driver) readBack(ctx context.Context) (note string, err error) {
	learned := dialect{}
	for _, f := range d.families {
		err := d.tryAndRead(ctx, f, d.sampled(f), learned)
		switch {
		case errors.As(err, new(*MisreadError)):
			return "", fmt.Errorf("iptables: %w: %w", dataplane.ErrUnsupported, err)
		case errors.As(err, new(*iptables.RestoreError)):
			note = fmt.Sprintf("%s: the format of iptables-save was not checked, because some rules cannot be written: %v", f, err)
		case err != nil:
			return "", fmt.Errorf("probe iptables: %w", err)
		}
	}
	d.reads(learned)
	return note, nil
}

// read reads the chain of a probe, and learns how its rules are printed.
func (d *Driver) read(ctx context.Context, f model.Family, wrote map[table][]string, learned dialect) error {
	for _, t := range tables {
		if len(wrote[t]) == 0 {
			continue
		}
		var got []string
		err := d.k.Save(ctx, kernelFamily(f), t.String(), func(line []byte) error {
			if chain, rule, ok := splitRule(line); ok && string(chain) == probeChain {
				got = append(got, string(rule))
			}
			return nil
		})
		if err != nil {
			return err
		}
		if len(got) != len(wrote[t]) {
			return &MisreadError{Wrote: fmt.Sprintf("%d rules in table %s", len(wrote[t]), t), Read: fmt.Sprintf("%d rules", len(got))}
		}
		for i, rule := range wrote[t] {
			if err := learned.learn(rule, got[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// reads makes the Kernel translate rules that are read into the form that the driver writes, if iptables prints
// any of them differently.
func (d *Driver) reads(learned dialect) {
	if learned.differs() {
		d.k = translated{d.p.Kernel, learned}
	}
}
