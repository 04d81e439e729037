package iptables

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// Load implements dataplane.Driver. A chain is owned if it has one of the driver's names. So the agent
// recognizes its chains after a restart, and takes over those that a kube-proxy left.
func (d *Driver) Load(ctx context.Context, emit func(dataplane.Key, string)) error {
	d.busy.Store(true)
	defer d.busy.Store(false)
	d.ensured = false // a missing counter may be the cause of the drift
	began := d.p.Now()
	before, err := d.k.Stamp(ctx)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	there := newMirror()
	there.writes = d.there.writes + 1
	if err := d.readAll(ctx, scan{there: &there, emit: emit}); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	after, err := d.k.Stamp(ctx)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	if before != after {
		return fmt.Errorf("load: %w", dataplane.ErrInterrupted)
	}
	d.there = there
	d.written.Store(there.writes)
	d.saw(after)
	d.readAt.Store(&began)
	d.unsure.Store(false)
	d.since = 0
	d.audit.finding.Store(nil)
	d.credit.spend(d.p.Now(), d.p.Now().Sub(began))
	return nil
}

// Survey implements dataplane.Driver. Each table is read atomically, between two
// writes, so that nothing is missed when another program writes concurrently.
func (d *Driver) Survey(ctx context.Context, emit func(dataplane.Key, string)) error {
	before, err := d.k.Stamp(ctx)
	if err != nil {
		return fmt.Errorf("survey: %w", err)
	}
	still := func() bool {
		now, err := d.k.Stamp(ctx)
		return err == nil && now == before
	}
	if err := d.readAll(ctx, scan{emit: emit, digests: true, still: still}); err != nil {
		return fmt.Errorf("survey: %w", err)
	}
	return nil
}

// scan holds the parameters of one read of all tables.
type scan struct {
	emit  func(dataplane.Key, string)
	there *mirror // records the actual state; nil: not required
	// still reports whether no program has written since the read began; nil: the caller verifies that itself.
	// With nf_tables a chain that is deleted before it is read looks like one without rules.
	still   func() bool
	digests bool // digests suffice for the values of chains, and the lines of shared chains are not required in the mirror
}

// readAll reads from the kernel directly where Probe has verified that this works, and the
// rest by the programs.
func (d *Driver) readAll(ctx context.Context, r scan) error {
	rest, err := d.readOwn(ctx, r)
	if err != nil {
		return err
	}
	for _, f := range d.families {
		if len(rest[f]) == 0 {
			continue
		}
		loaders := map[string]*loader{}
		for _, t := range tables {
			loaders[t.String()] = newLoader(r, f, t)
		}
		err := d.k.SaveAll(ctx, kernelFamily(f), rest[f], func(table string, line []byte) error { return loaders[table].read(line) })
		if err != nil {
			return err
		}
		for _, t := range rest[f] {
			d.tell(loaders[t])
		}
	}
	return nil
}

// tell reports a table that has been read completely, and caches it.
func (d *Driver) tell(l *loader) {
	l.end()
	d.remember(l)
}

// served sets the families that Probe found usable.
func (d *Driver) served(list []model.Family) { d.families = list }
