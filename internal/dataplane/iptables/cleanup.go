package iptables

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
)

// Cleanup implements dataplane.Driver: it deletes the rules that jump to owned chains
// and the chains, by their names; then the counters, which cannot go while a rule
// feeds them.
func (d *Driver) Cleanup(ctx context.Context) error {
	var problems []error
	if err := RemoveLeftovers(ctx, d.k, Ours); err != nil {
		problems = append(problems, fmt.Errorf("clean up iptables (%s): %w", d.k.Backend(), err))
	} else {
		problems = append(problems, d.removeCounters(ctx))
	}
	d.there = newMirror()
	d.saw(iptables.Stamp{})
	return errors.Join(problems...)
}
