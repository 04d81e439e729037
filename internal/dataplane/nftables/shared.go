package nftables

import (
	"strconv"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// front is the part of its key by which a Frontend is looked up.
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

func (p pool) set() *setDef { return defOf(p.kind()) }

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

// liveKind returns the kind of the set of endpoints that may be remembered.
func (p pool) liveKind() dataplane.Kind {
	pair := [...][2]dataplane.Kind{{kindLive, kindLocalLive}, {kindNodePortLive, kindNodePortLocalLive}}[p.front]
	if p.local {
		return pair[1]
	}
	return pair[0]
}

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

// leaf describes a shared chain that is the last one of a connection: it draws an
// endpoint from a pool. It contains everything that varies and nothing of any
// Service, so there are few.
type leaf struct {
	pool       pool
	class      uint32 // power of two, at least the number of slots; of a hash table, its size
	masquerade bool
	hash       bool   // by a hash of the client's address, not at random
	memory     memory // of a Service port with affinity: only that port uses the chain
	shard      uint8
}

// tries is how often a draw may hit an empty slot before a draw from the lower half,
// which is always full, is used. An upper slot loses at most (1/2)^6 of its share
// (nftables.md E4).
const tries = 6

func (c leaf) name() string {
	b := make([]byte, 0, 96)
	if c.masquerade {
		b = append(b, "ext-"...)
	}
	return string(c.memory.appendName(c.appendName(b)))
}

func (c leaf) sticky() bool { return c.memory != memory{} }

// plain returns the leaf that draws for c when no endpoint is remembered.
func (c leaf) plain() leaf {
	c.memory, c.masquerade = memory{}, false
	return c
}

// appendName appends what distinguishes the chains of one Service port from shared ones.
func (m memory) appendName(b []byte) []byte {
	if m.port == "" {
		return b
	}
	return append(append(b, '/'), m.port...)
}

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

// rules returns the rules of a leaf. They are flat, without a separate chain for what several
// leaves have in common: on 6.1 the kernel walks nested chains once per verdict element.
func (c leaf) rules(l lang, markBits uint32) []rule {
	var out []rule
	if c.masquerade {
		out = append(out, nft.Mark(markBits))
	}
	return append(out, c.draws(l)...)
}

// draws returns the rules that choose: the remembered endpoint, then random slots.
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

func (c leaf) draw(l lang, modulus uint32) rule {
	key, next := l.frontend(c.pool.front)
	slot := rule{nft.RandomSlot(nft.Word(next), modulus)}
	if c.hash {
		slot = rule{nft.SourceAddr(l.f, nft.Word(hashWord)), nft.Hash(nft.HashSpec{
			Source: nft.Word(hashWord), Dest: nft.Word(next), Bytes: uint32(l.addr * 4), Modulus: modulus, Seed: model.HashSeed, Offset: hashBase})}
	}
	return nft.Join(key, slot, rule{lookup(c.pool.set().parts()[c.shard]), l.dnat(c.pool.front != byRange)})
}
