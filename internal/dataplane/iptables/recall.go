package iptables

import (
	"context"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
)

// To read one chain, the programs take milliseconds with nf_tables, and with x_tables they read the whole table, whose rules
// the kernel returns only all at once: at 10 000 Services of ten endpoints a tenth of a second and more than a second of CPU
// time. The stamp costs microseconds. With nf_tables it detects every change; with x_tables it does not detect a rule
// replaced by another of the same size, so a few rules are read nevertheless.

// fewRules is how many rules x_tables may hold for Compare to read them: some milliseconds.
const fewRules = 1000

// Recall implements dataplane.Recaller.
func (d *Driver) Recall(ctx context.Context) (r dataplane.Recall, ok bool) {
	read, known, busy := d.readAt.Load(), d.known.Load(), d.busy.Load()
	now, err := d.k.Stamp(ctx)
	legacy := d.k.Backend() == iptables.Legacy
	if read == nil || err != nil || legacy && now.Entries() < fewRules {
		return r, false
	}
	r = dataplane.Recall{Read: *read, How: "the nf_tables generation shows no write by another program since then"}
	if legacy {
		r.How = "no table has changed in size since then"
		r.Blind = "a rule that replaced another of the same size is not detected this way: `fairlead audit` reads all rules"
	}
	switch {
	case busy || d.busy.Load() || d.known.Load() != known:
		r.How = "the agent is reading or writing the rules now"
	case now == *known && !d.unsure.Load():
		r.Holds = true
	case legacy:
		r.How = "another program has changed them since then; the agent will read them again"
	default: // a chain can be read
		return r, false
	}
	return r, true
}
