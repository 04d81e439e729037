package iptables

import (
	"sync"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
)

// With nf_tables the kernel needs three microseconds to list a rule, and with x_tables we
// need one to put it into words, so that a hundred thousand of them cannot be read in 300 ms
// on two processors. What was read of a chain stands until somebody writes it; where the
// Kernel can tell that nobody has (iptables.Reading.Since), the next one takes it from here.
// A Load leaves its findings too, but takes none.

// memory is what was read of each table last. Loads, Surveys and audits run side by side.
type memory struct {
	mu     sync.Mutex
	tables map[familyTable]remembered
}

// remembered is one table as one reading found it. It does not change.
type remembered struct {
	began iptables.Mark
	found map[string]*seen
	empty map[string]struct{} // chains without rules
}

// recalled returns what a reading may leave out, and takes it from memory where it does.
func (d *Driver) recalled(l *loader) (since iptables.Mark, same func(chain string) bool) {
	d.memory.mu.Lock()
	l.last = d.memory.tables[l.ref.ft()]
	d.memory.mu.Unlock()
	return l.last.began, func(chain string) bool {
		if one := l.last.found[chain]; one != nil {
			l.found = append(l.found, one)
			l.recalled++
			return true
		}
		_, empty := l.last.empty[chain]
		if empty {
			l.declared[chain] = struct{}{}
			l.recalled++
		}
		return empty
	}
}

// remember keeps what a reading found, if the Kernel could say when it began. By now
// l.declared are the chains without rules.
func (d *Driver) remember(l *loader) {
	if l.mark == 0 {
		return
	}
	now := remembered{l.mark, l.last.found, l.last.empty}
	if all := len(l.found) + len(l.declared); all != l.recalled || all != len(now.found)+len(now.empty) {
		now.found, now.empty = make(map[string]*seen, len(l.found)), l.declared
		for _, one := range l.found {
			now.found[one.chain()] = one
		}
	}
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	if l.mark < d.memory.tables[l.ref.ft()].began {
		return
	}
	if d.memory.tables == nil {
		d.memory.tables = map[familyTable]remembered{}
	}
	d.memory.tables[l.ref.ft()] = now
}
