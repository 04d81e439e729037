package nftables

import (
	"strconv"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// front is which parts of a Frontend's key its lookup uses.
type front uint8

const (
	byVIP front = iota
	byNodePort
	byRange
)

// pool is one of the maps of endpoints.
type pool struct {
	front front
	local bool // endpoints on this node only
}

// set returns the definition of the map of endpoints.
func (p pool) set() *setDef { return defOf(p.kind()) }

// kind returns the kind of the objects in the map of endpoints.
func (p pool) kind() dataplane.Kind {
	pair := [...][2]dataplane.Kind{
		{kindEndpoints, kindLocalEndpoints},
		{kindNodePortEndpoints, kindNodePortLocalEndpoints},
		{kindRangeEndpoints, kindRangeLocalEndpoints},
	}[p.front]
	if p.local {
		return pair[1]
	}
	return pair[0]
}

// liveKind returns the kind of the pool's set of live endpoints. Only those endpoints may be
// used for session affinity.
func (p pool) liveKind() dataplane.Kind {
	pair := [...][2]dataplane.Kind{{kindLive, kindLocalLive}, {kindNodePortLive, kindNodePortLocalLive}}[p.front]
	if p.local {
		return pair[1]
	}
	return pair[0]
}

// name returns the part of a chain's name that stands for the pool, with a hyphen at its end.
func (p pool) name() string {
	name := [...]string{"lb-", "np-", "range-"}[p.front]
	switch {
	case p.local && p.front == byVIP:
		return "local-"
	case p.local:
		return name + "local-"
	}
	return name
}

// leaf describes a chain that draws an endpoint from a pool, which is the last step for
// a connection. It has all parameters of the chain. Without session affinity none of them
// belongs to one Service, so chains are shared and few.
type leaf struct {
	pool       pool
	class      uint32 // power of two, at least the number of slots; of a hash table, its size
	masquerade bool
	hash       bool   // selects by a hash of the client's address, not at random
	memory     memory // of a Service port with affinity: the chain belongs to that port
	shard      uint8
}

// tries is how many random draws from the whole class may hit an empty slot. The draw
// after those uses the lower half, which is always full: an upper slot loses at most
// (1/2)^6 of its share (nftables.md E4).
const tries = 6

// name returns the name of the chain. Examples: lb-a-4 draws from class 4 of the shard eps-a, ext-np-4 marks for masquerade
// and draws from np-eps, hash-lb-a-2048 selects from a consistent hash table, aff-lb-b-2/shop/cart/tcp/http looks up the
// client of a port with session affinity first.
func (c leaf) name() string {
	b := make([]byte, 0, 96)
	if c.masquerade {
		b = append(b, "ext-"...)
	}
	return string(c.memory.appendName(c.appendName(b)))
}

// sticky reports whether the chain belongs to one Service port with session affinity.
func (c leaf) sticky() bool { return c.memory != memory{} }

// plain returns the shared leaf that draws for c when the client has no live endpoint
// in its memory.
func (c leaf) plain() leaf {
	c.memory, c.masquerade = memory{}, false
	return c
}

// appendName appends the suffix that distinguishes sticky chains from shared ones.
func (m memory) appendName(b []byte) []byte {
	if m.port == "" {
		return b
	}
	return append(append(b, '/'), m.port...)
}

// appendName appends the name without the prefix for masquerading and without the
// suffix of a Service port.
func (c leaf) appendName(b []byte) []byte {
	if c.sticky() {
		b = append(b, "aff-"...)
	}
	if c.hash {
		b = append(b, "hash-"...)
	}
	b = append(b, c.pool.name()...)
	if c.class > 0 && c.pool.set().split {
		b = append(append(b, shardDigits[c.shard]...), '-')
	}
	return strconv.AppendUint(b, uint64(c.class), 10)
}

// rules returns the rules of a leaf. They are flat: rules that several leaves have in
// common are not in a chain of their own, because kernel 6.1 walks nested chains once per
// verdict element.
func (c leaf) rules(l lang, markBits uint32) []rule {
	var out []rule
	if c.masquerade {
		out = append(out, nft.Mark(markBits))
	}
	return append(out, c.draws(l)...)
}

// draws returns the rules that select an endpoint. A sticky leaf tries the remembered
// endpoint first, then goes to the plain leaf.
func (c leaf) draws(l lang) []rule {
	if c.sticky() {
		return []rule{nft.Does(nft.Jump(c.memory.recall(c.pool))), nft.Does(nft.Goto(c.plain().name()))}
	}
	var out []rule
	if c.class <= 2 || c.hash { // every slot is full
		return append(out, c.draw(l, c.class))
	}
	for range tries {
		out = append(out, c.draw(l, c.class))
	}
	return append(out, c.draw(l, c.class/2))
}

// draw returns one rule that looks up a slot below modulus and translates to its endpoint.
func (c leaf) draw(l lang, modulus uint32) rule {
	key, next := l.frontend(c.pool.front)
	slot := rule{nft.RandomSlot(nft.Word(next), modulus)}
	if c.hash {
		slot = rule{nft.SourceAddr(l.f, nft.Word(hashWord)), nft.Hash(nft.HashSpec{
			Source: nft.Word(hashWord), Dest: nft.Word(next), Bytes: uint32(l.addr * 4), Modulus: modulus, Seed: model.HashSeed, Offset: hashBase})}
	}
	return nft.Join(key, slot, rule{lookup(c.pool.set().parts()[c.shard]), l.dnat(c.pool.front != byRange)})
}
