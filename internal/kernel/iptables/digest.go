package iptables

import (
	"encoding/binary"
	"hash/maphash"
	"sync"
)

// x_tables cannot tell what was written since, so that every reading copies a table whole.
// But to put a hundred thousand rules into words takes as long again, and most are what
// they were. So of each chain a digest is made, of the bytes of its entries: it is the
// same only if the same words come out.
//
// Three things in an entry are not of the rule: its counters and two numbers of the
// kernel's own. And a jump has the place of a chain, which moves with every chain in
// front of it, so that its name is taken instead. All else is as it was written: the
// kernel gives none of what matches and targets keep for themselves (xt_data_to_user),
// and bytes that it leaves as they are were zero, for each reading has fresh memory.
//
// A digest has 64 bits and a key of this process's. Who could look for two chains that
// have the same one never sees one, nor the key.

const countersSize = 16 // struct xt_counters

// add sums up one more entry of a chain that is ours. Into the place of the counters it
// writes the digest of the entries before this one, and whether it jumps: the copy is
// nobody else's, and nothing reads what was there.
func (e *entries) add(c *xchain, n *entry, next uint32) {
	b, l := n.bytes, &e.layout
	clear(b[l.offsets-4 : l.offsets]) // nfcache
	clear(b[l.offsets+4 : l.size])    // comefrom, counters
	counters := b[l.size-countersSize : l.size]
	binary.NativeEndian.PutUint64(counters, c.digest)
	if verdict, standard := n.verdict(); standard && verdict >= 0 {
		b = b[:n.target+extensionHead]
		if uint32(verdict) != next { // else it goes on
			counters[8] = 1
			e.jumps = append(e.jumps, uint32(verdict))
			c.jumps++
		}
	}
	c.digest = maphash.Bytes(e.seed, b)
}

// sumUp adds to the digests of all chains that are ours where they jump to. It is false
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

// differ reports whether all chains that are ours have names of their own.
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

// untouched reports whether it is what it was when the reading took place that is known.
func (c *xchain) untouched() bool { return c.digest != 0 && c.digest == c.before }

// knownChain is a chain of ours as one reading found it.
type knownChain struct {
	name   string
	digest uint64
}

// found returns the chains of this reading.
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

// digests are those of the last reading of each table.
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

// digested is what one reading found. It does not change.
type digested struct {
	began  Mark
	chains map[string]knownChain
}

func newDigests() digests {
	return digests{seed: maphash.MakeSeed(), tables: map[familyTable]digested{}}
}

// mark returns a moment of its own to a reading.
func (d *digests) mark() Mark {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now++
	return d.now
}

// since returns what the reading found that the next one refers to; nil if that is not the last.
func (d *digests) since(r *Reading) map[string]knownChain {
	d.mu.Lock()
	defer d.mu.Unlock()
	if last := d.tables[familyTable{r.Family, r.Table}]; r.Same != nil && last.began == r.Since {
		return last.chains
	}
	return nil
}

// keep takes what a reading found in its whole.
func (d *digests) keep(r *Reading, began Mark, chains map[string]knownChain) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := (familyTable{r.Family, r.Table}); began > d.tables[at].began {
		d.tables[at] = digested{began, chains}
	}
}
