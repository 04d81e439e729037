package nftables

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/internal/model"
)

// poolReader collects slots, which arrive in the order of the kernel's hash. During the kernel's listing it only appends them
// to a buffer: finding the pool of each slot needs a table, which the listing would evict from the processor's
// cache repeatedly.
type poolReader struct {
	ident, width int    // bytes of an ID and of an endpoint
	raw          []byte // of each slot that was read: the ID of its pool, its number, its endpoint
	pools        map[string]int
	found        []readPool
	of           []int // by slot in raw: the index in found of its pool
}

// readPool is one pool. Its slots are contiguous.
type readPool struct {
	id       string
	from, to int // its slots, among those of all
}

// slotNumber is how many bytes the number of a slot has in raw.
const slotNumber = 4

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

// sort finds the pool of each slot, and how many slots each pool has.
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
