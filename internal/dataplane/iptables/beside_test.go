package iptables

import (
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
)

// A commit of our own process beside the tables of iptables costs no reading, but only if nobody wrote between.
func TestBeside(t *testing.T) {
	at := func(g uint32) iptables.Stamp { return iptables.Stamp{Generation: g} }
	for _, c := range []struct{ known, made, then uint32 }{
		{7, 8, 8}, {7, 9, 7}, {7, 7, 7}, {7, 6, 7}, {1<<32 - 1, 1, 1}, {0, 1, 0},
	} {
		d := New(Params{})
		d.saw(at(c.known))
		d.Beside(c.made)
		if d.stamp != at(c.then) || *d.known.Load() != at(c.then) {
			t.Errorf("known %d, made %d: now %v", c.known, c.made, d.stamp)
		}
	}
}
