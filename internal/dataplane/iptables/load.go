package iptables

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// Load implements dataplane.Driver. Ours is what has one of our names: so a
// restart knows its own, and what a kube-proxy left is taken over.
func (d *Driver) Load(ctx context.Context, emit func(dataplane.Key, string)) error {
	d.busy.Store(true)
	defer d.busy.Store(false)
	d.ensured = false // what is wrong with the rules may be that a counter is gone
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

// Survey implements dataplane.Driver. Each table is read in one piece, between two
// writes, so that nothing is missed whoever writes meanwhile.
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

// scan is what one reading of everything is for.
type scan struct {
	emit  func(dataplane.Key, string)
	there *mirror // takes what is there; nil: nobody asks
	// still reports whether nobody has written since the reading began; nil: nobody may have.
	// With nf_tables a chain that is deleted before it is read looks as one without rules.
	still   func() bool
	digests bool // digests will do for the values of chains, and nobody asks for the lines of those that are shared
}

// readAll asks the kernel itself where Probe has found that it can, and the programs for
// the rest.
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

// tell reports of a table that was read to its end.
func (d *Driver) tell(l *loader) {
	l.end()
	d.remember(l)
}

// served drops what Probe found unusable.
func (d *Driver) served(list []model.Family) { d.families = list }
