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

// ownRead is a table that was read, or not.
type ownRead struct {
	*loader
	err error
}

// readOwn reads the tables that it can, of both families at once, and gives the others of
// each family. Of each that it reads it tells.
func (d *Driver) readOwn(ctx context.Context, r scan) (rest map[model.Family][]string, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	rest = map[model.Family][]string{}
	reads := make(chan ownRead, len(bothFamilies)*len(tables)) // room for all, so that nobody waits
	running := 0
	for _, f := range d.families {
		if !d.own[f].works {
			rest[f] = tableNames()
			continue
		}
		running += len(tables)
		go d.readFamily(ctx, r, f, reads)
	}
	for range running {
		got := <-reads
		switch {
		case got.err == nil:
			d.tell(got.loader)
		case errors.Is(got.err, iptables.ErrUnreadable):
			d.tellUnreadable(got.err)
			rest[got.ref.family] = append(rest[got.ref.family], got.ref.table.String())
		case err == nil || errors.Is(err, context.Canceled):
			err = got.err
			stop()
		}
	}
	return rest, err
}

// readFamily reads a family's tables. The kernel gives one at a time, and then it is put
// into words beside the next: so the largest, which is the first, is begun before the others.
func (d *Driver) readFamily(ctx context.Context, r scan, f model.Family, reads chan<- ownRead) {
	for _, t := range tables {
		begun := make(chan struct{})
		begin := sync.OnceFunc(func() { close(begun) })
		go func() {
			l := newLoader(r, f, t)
			err := d.readTable(ctx, l, begin)
			begin()
			reads <- ownRead{l, err}
		}()
		<-begun
	}
}

func (d *Driver) readTable(ctx context.Context, l *loader, begin func()) error {
	r := oursIn(l.ref.family, l.ref.table)
	r.Began = func(m iptables.Mark) {
		l.mark = m
		begin()
	}
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
