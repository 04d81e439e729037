package iptables

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// What the programs print is what they cost: nearly all of an audit. Kernel.Read needs no
// program, but it stands on how this kernel and this iptables keep each kind of rule. So
// it is used where Probe has seen it read every kind as it was written, and of those tables
// only in which it knows every rule that matters.

// ownReading is what Probe found out about Kernel.Read in one family.
type ownReading struct {
	works bool
	note  string // why not
}

// readOwn reads the tables that it can, all at once, and gives the names of the others.
func (d *Driver) readOwn(ctx context.Context, f model.Family, readers map[string]*loader) (rest []string, err error) {
	if !d.own[f].works {
		return tableNames(), nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	var failed [len(tables)]error
	for i, t := range tables {
		running.Go(func() {
			if failed[i] = d.readTable(ctx, readers[t.String()]); failed[i] != nil && !errors.Is(failed[i], iptables.ErrUnreadable) {
				stop()
			}
		})
	}
	running.Wait()
	for i, t := range tables {
		l := readers[t.String()]
		switch {
		case errors.Is(failed[i], iptables.ErrUnreadable):
			d.tellUnreadable(failed[i])
			*l = *newLoader(l.scan, f, t)
			rest = append(rest, t.String())
		case failed[i] != nil && (err == nil || errors.Is(err, context.Canceled)):
			err = failed[i]
		}
	}
	return rest, err
}

func (d *Driver) readTable(ctx context.Context, l *loader) error {
	r := oursIn(l.ref.family, l.ref.table)
	r.Began = func(m iptables.Mark) { l.mark = m }
	if l.digests {
		r.Since, r.Same = d.recalled(l)
	}
	return d.k.Read(ctx, r, l.read)
}

// oursIn asks for all that is ours in a table.
func oursIn(f model.Family, t table) iptables.Reading {
	return iptables.Reading{Family: kernelFamily(f), Table: t.String(), Ours: func(chain string) bool { return kindOfChain(t, chain) != 0 }}
}

// tellUnreadable says once what makes readings dear.
func (d *Driver) tellUnreadable(err error) {
	if d.toldUnreadable.CompareAndSwap(false, true) {
		d.p.Log.Info("a table is read by iptables-save, which takes longer", "because", err)
	}
}

// tryOwn reads the chain of a probe with Kernel.Read, and remembers whether all rules came
// out as they were written.
func (d *Driver) tryOwn(ctx context.Context, f model.Family, wrote map[table][]string) {
	if d.own == nil {
		d.own = map[model.Family]ownReading{}
	}
	d.own[f] = ownReading{works: true}
	for _, t := range tables {
		if len(wrote[t]) == 0 {
			continue
		}
		var got []string
		r := oursIn(f, t)
		r.Ours = func(chain string) bool { return chain == probeChain }
		err := d.k.Read(ctx, r, func(line []byte) error {
			if chain, rule, ok := splitRule(line); ok && string(chain) == probeChain {
				got = append(got, string(rule))
			}
			return nil
		})
		if err != nil {
			d.own[f] = ownReading{note: unreadNote(err)}
			return
		}
		for i, rule := range wrote[t] {
			if i >= len(got) || got[i] != rule {
				read := strings.Join(got[min(i, len(got)):min(i+1, len(got))], "")
				d.own[f] = ownReading{note: fmt.Sprintf("wrote %q, read %q", rule, read)}
				return
			}
		}
	}
}

// unreadNote is "" for a Kernel that has no Read at all: it gives the bare error, and to one with a reason that is wrapped.
func unreadNote(err error) string {
	if err == iptables.ErrUnreadable {
		return ""
	}
	return err.Error()
}

// ownNotes tell for which families the programs read, and why.
func (d *Driver) ownNotes() (notes []string) {
	for _, f := range bothFamilies {
		if own, tried := d.own[f]; tried && !own.works && own.note != "" {
			notes = append(notes, fmt.Sprintf("%s: rules are read by iptables-save, which takes longer: %s", f, own.note))
		}
	}
	return notes
}
