package iptables

import (
	"sync"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
)

// With nf_tables the kernel needs three microseconds to list a rule, and with x_tables the
// agent needs one to decode it, so that a hundred thousand of them cannot be read in 300 ms
// on two processors. What was read of a chain is valid until a program writes it. Where the
// Kernel reports that none has (iptables.Reading.Since), the next read takes it from this cache.
// A Load also fills the cache, but does not use it.

// memory caches the last read of each table. Loads, Surveys and audits run concurrently.
type memory struct {
	mu     sync.Mutex
	tables map[familyTable]remembered
}

// remembered is one table as one read found it. It is immutable.
type remembered struct {
	began iptables.Mark
	found map[string]*seen
	empty map[string]struct{} // chains without rules
}

// recalled returns what a read may skip, and takes the skipped chains from the cache.
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

// remember caches what a read found, if the Kernel reported when it began. At this point
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
