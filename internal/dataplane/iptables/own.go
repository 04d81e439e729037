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

// Printing by the programs is nearly the whole cost of an audit. Kernel.Read needs no
// program, but it depends on how this kernel and this iptables store each kind of rule. So
// it is used only where Probe has verified that it reads every kind as written, and only for
// tables in which it can decode every relevant rule.

// ownReading is the result of probing Kernel.Read in one family.
type ownReading struct {
	works bool
	note  string // why not
}

// ownRead is the result of reading one table.
type ownRead struct {
	*loader
	err error
}

// readOwn reads the tables that Kernel.Read can, of both families concurrently, and returns the
// remaining tables of each family. It reports each table that it reads.
func (d *Driver) readOwn(ctx context.Context, r scan) (rest map[model.Family][]string, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	rest = map[model.Family][]string{}
	reads := make(chan ownRead, len(bothFamilies)*len(tables)) // buffered for all, so that no sender blocks
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

// readFamily reads a family's tables. The kernel dumps one at a time; it is decoded
// concurrently with the dump of the next. So the largest, which is the first, starts before the others.
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

// oursIn returns the Reading of all owned chains in a table.
func oursIn(f model.Family, t table) iptables.Reading {
	return iptables.Reading{Family: kernelFamily(f), Table: t.String(), Ours: func(chain string) bool { return kindOfChain(t, chain) != 0 }}
}

// tellUnreadable logs, once, why reads take the slow path.
func (d *Driver) tellUnreadable(err error) {
	if d.toldUnreadable.CompareAndSwap(false, true) {
		d.p.Log.Info("reading a table with iptables-save, which is slower", "because", err)
	}
}

// tryOwn reads the chain of a probe with Kernel.Read, and records whether all rules were read
// exactly as written.
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

// unreadNote returns "" for a Kernel without Read, which returns the bare ErrUnreadable. An error with a reason wraps it.
func unreadNote(err error) string {
	if err == iptables.ErrUnreadable {
		return ""
	}
	return err.Error()
}

// ownNotes returns, per family that is read by the programs, the reason.
func (d *Driver) ownNotes() (notes []string) {
	for _, f := range bothFamilies {
		if own, tried := d.own[f]; tried && !own.works && own.note != "" {
			notes = append(notes, fmt.Sprintf("%s: rules are read with iptables-save, which is slower: %s", f, own.note))
		}
	}
	return notes
}
