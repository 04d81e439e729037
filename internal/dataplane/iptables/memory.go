package iptables

import (
	"sync"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
)

// To have the kernel list a rule costs three microseconds, so that a hundred thousand
// of them cannot be read in 300 ms on two processors. What was read of a chain stands until
// somebody writes it; where the Kernel can tell that nobody has
// (iptables.Reading.Since), the next one takes it from here. A Load leaves its findings too, but takes none.

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

// recalled gives what a reading may leave out, and takes it from memory where it does.
func (d *Driver) recalled(l *loader) (since iptables.Mark, same func(chain string) bool) {
	d.memory.mu.Lock()
	last := d.memory.tables[l.ref.ft()]
	d.memory.mu.Unlock()
	return last.began, func(chain string) bool {
		if one := last.found[chain]; one != nil {
			l.found = append(l.found, one)
			return true
		}
		_, empty := last.empty[chain]
		if empty {
			l.empty = append(l.empty, chain)
		}
		return empty
	}
}

// remember keeps what a reading found, if the Kernel could say when it began.
func (d *Driver) remember(l *loader) {
	if l.mark == 0 {
		return
	}
	now := remembered{l.mark, map[string]*seen{}, map[string]struct{}{}}
	for _, one := range l.found {
		now.found[one.chain] = one
	}
	for _, name := range l.empty {
		if now.found[name] == nil {
			now.empty[name] = struct{}{}
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
