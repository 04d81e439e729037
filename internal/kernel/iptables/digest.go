package iptables

import (
	"encoding/binary"
	"hash/maphash"
	"sync"
)

// x_tables does not report which chains changed, so each read copies a whole table.
// Printing a hundred thousand rules takes as long as the copy, and most rules are
// unchanged. So each read makes a digest of each chain, over the bytes of its entries: an
// equal digest means that the printed lines are equal.
//
// Three fields of an entry are not part of the rule: its counters and two numbers of the
// kernel's own. A jump holds the offset of a chain, which moves with every chain in
// front of it, so the digest takes the chain's name instead. All other bytes are those that
// the program wrote: the kernel does not return the private state of matches and targets
// (xt_data_to_user), and the bytes that it skips are zero, because each read has fresh memory.
//
// A digest has 64 bits and a key of this process. An attacker who searches for two chains
// with the same digest sees neither a digest nor the key.

const countersSize = 16 // struct xt_counters

// add adds one entry to the digest of an owned chain. It overwrites the entry's counters
// with the digest of the entries before this one, and whether it jumps: the copy
// belongs to this read, and no code reads the counters from it.
func (e *entries) add(c *xchain, n *entry, next uint32) {
	b, l := n.bytes, &e.layout
	clear(b[l.offsets-4 : l.offsets]) // nfcache
	clear(b[l.offsets+4 : l.size])    // comefrom, counters
	counters := b[l.size-countersSize : l.size]
	binary.NativeEndian.PutUint64(counters, c.digest)
	if verdict, standard := n.verdict(); standard && verdict >= 0 {
		b = b[:n.target+extensionHead]
		if uint32(verdict) != next { // otherwise the rule continues with the next entry
			counters[8] = 1
			e.jumps = append(e.jumps, uint32(verdict))
			c.jumps++
		}
	}
	c.digest = maphash.Bytes(e.seed, b)
}

// sumUp adds the jump targets to the digests of all owned chains. It returns false
// if two chains have one name.
func (e *entries) sumUp() bool {
	var sum []byte
	left, last, sorted := e.jumps, "", true
	for i := range e.chains {
		c := &e.chains[i]
		if !c.ours {
			continue
		}
		sorted, last = sorted && last < c.name, c.name
		sum = binary.NativeEndian.AppendUint64(sum[:0], c.digest)
		known := true
		for _, at := range left[:c.jumps] {
			to := e.chainAt(at)
			if known = known && to != nil && !to.builtIn && to.clean; known {
				sum = binary.NativeEndian.AppendUint64(sum, maphash.String(e.seed, to.name))
			}
		}
		left = left[c.jumps:]
		if c.digest = 0; known {
			c.digest = maphash.Bytes(e.seed, sum)
		}
	}
	return sorted || e.differ() // libiptc sorts chains by their names
}

// differ reports whether the names of all owned chains are distinct.
func (e *entries) differ() bool {
	names := make(map[string]struct{}, len(e.chains))
	count := 0
	for i := range e.chains {
		if c := &e.chains[i]; c.ours {
			names[c.name] = struct{}{}
			count++
		}
	}
	return len(names) == count
}

// untouched reports whether the chain is unchanged since the previous read.
func (c *xchain) untouched() bool { return c.digest != 0 && c.digest == c.before }

// knownChain is the state of an owned chain in one read.
type knownChain struct {
	name   string
	digest uint64
}

// found returns the owned chains of this read.
func (e *entries) found() map[string]knownChain {
	ours, untouched := 0, 0
	for i := range e.chains {
		c := &e.chains[i]
		if c.ours {
			ours++
			if c.untouched() {
				untouched++
			}
		}
	}
	if untouched == ours && ours == len(e.known) {
		return e.known
	}
	out := make(map[string]knownChain, ours)
	for i := range e.chains {
		if c := &e.chains[i]; c.ours {
			out[c.name] = knownChain{c.name, c.digest}
		}
	}
	return out
}

// digests caches the digests of the last read of each table.
type digests struct {
	seed   maphash.Seed
	mu     sync.Mutex
	now    Mark
	tables map[familyTable]digested
}

type familyTable struct {
	family Family
	table  string
}

// digested is the result of one read. It is immutable.
type digested struct {
	began  Mark
	chains map[string]knownChain
}

func newDigests() digests {
	return digests{seed: maphash.MakeSeed(), tables: map[familyTable]digested{}}
}

// mark returns a new Mark for a read.
func (d *digests) mark() Mark {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now++
	return d.now
}

// since returns the result of the read that r.Since names; nil unless that is the last read of the table.
func (d *digests) since(r *Reading) map[string]knownChain {
	d.mu.Lock()
	defer d.mu.Unlock()
	if last := d.tables[familyTable{r.Family, r.Table}]; r.Same != nil && last.began == r.Since {
		return last.chains
	}
	return nil
}

// keep caches the result of a complete read, unless a later read is cached.
func (d *digests) keep(r *Reading, began Mark, chains map[string]knownChain) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := (familyTable{r.Family, r.Table}); began > d.tables[at].began {
		d.tables[at] = digested{began, chains}
	}
}
