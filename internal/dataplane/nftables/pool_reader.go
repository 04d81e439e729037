package nftables

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/internal/model"
)

// poolReader collects slots, which arrive in the order of the kernel's hash, and groups them by pool. While the kernel lists them they
// are only appended to raw: finding the pool of each needs a table, and the listing would repeatedly evict that table from the
// processor's cache.
type poolReader struct {
	ident, width int    // bytes of an ID and of an endpoint
	raw          []byte // for each slot that was read: the ID of its pool, its number, its endpoint
	pools        map[string]int
	found        []readPool
	of           []int // for each slot in raw: the index of its pool in found
}

// readPool is one pool. Its slots are consecutive.
type readPool struct {
	id       string
	from, to int // the range of its slots among those of all pools
}

// slotNumber is the length of a slot's number in raw, in bytes.
const slotNumber = 4

// begin resets the reader for the set of a definition.
func (p *poolReader) begin(def *setDef, f model.Family) {
	p.ident, p.width = def.ident.tail(), def.slotWidth(f)
	if def.ident != identNodePort {
		p.ident += addrLen(f)
	}
	p.raw = p.raw[:0]
}

// add appends one slot. All IDs of a set have the same length.
func (p *poolReader) add(id []byte, n int, data []byte) {
	p.raw = append(p.raw, id...)
	p.raw = binary.NativeEndian.AppendUint32(p.raw, uint32(n))
	p.raw = append(p.raw, data[:p.width]...)
}

// end emits the pools. Their values are substrings of one string.
func (p *poolReader) end(emit func(id, value string)) {
	if len(p.raw) == 0 {
		return
	}
	p.sort()
	total := 0
	for i := range p.found {
		f := &p.found[i]
		f.from, f.to, total = total, total+f.to, total+f.to
	}
	slots := make([]byte, total*p.width)
	for i, rest := 0, p.raw; len(rest) > 0; i++ {
		n := int(binary.NativeEndian.Uint32(rest[p.ident:]))
		copy(slots[(p.found[p.of[i]].from+n)*p.width:], rest[p.ident+slotNumber:][:p.width])
		rest = rest[p.ident+slotNumber+p.width:]
	}
	all := string(slots)
	for _, f := range p.found {
		emit(f.id, all[f.from*p.width:f.to*p.width])
	}
}

// sort computes the pool of each slot, and how many slots each pool has.
func (p *poolReader) sort() {
	if p.pools == nil {
		p.pools = map[string]int{}
	}
	clear(p.pools)
	p.found, p.of = p.found[:0], p.of[:0]
	for rest := p.raw; len(rest) > 0; rest = rest[p.ident+slotNumber+p.width:] {
		i, known := p.pools[string(rest[:p.ident])]
		if !known {
			i = len(p.found)
			p.found = append(p.found, readPool{id: string(rest[:p.ident])})
			p.pools[p.found[i].id] = i
		}
		p.of = append(p.of, i)
		p.found[i].to = max(p.found[i].to, 1+int(binary.NativeEndian.Uint32(rest[p.ident:])))
	}
}
