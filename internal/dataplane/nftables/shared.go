package nftables

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// front says by what a pool's Frontends are found.
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

// liveKind is the kind of the set of endpoints that may be remembered.
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

// leaf describes a shared chain that ends a connection's way: it draws an
// endpoint from a pool. Everything that varies is in it, and nothing of any
// Service, so there are few.
type leaf struct {
	pool       pool
	class      uint32 // power of two, at least the number of slots; of a hash table, its size
	masquerade bool
	hash       bool   // by a hash of the client's address, not at random
	memory     memory // of a Service port with affinity: the chain is that port's own
	shard      uint8
}

// tries is how often a draw may hit an empty slot before the lower half, which
// is always full, answers: an upper slot loses at most (1/2)^6 of its share
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

// plain is the leaf that draws for c when nothing is remembered.
func (c leaf) plain() leaf {
	c.memory, c.masquerade = memory{}, false
	return c
}

// appendName tells the chains of one Service port from those that all share.
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

// rules of a leaf are flat, without a chain of their own for what several leaves
// have in common: on 6.1 the kernel walks nested chains once per verdict element.
func (c leaf) rules(l lang, markBits uint32) []rule {
	var out []rule
	if c.masquerade {
		out = append(out, mark(markBits))
	}
	return append(out, c.draws(l)...)
}

// draws are the rules that choose: the remembered endpoint, then random slots.
func (c leaf) draws(l lang) []rule {
	if c.sticky() {
		return []rule{does(nft.Jump(c.memory.recall(c.pool))), does(nft.Goto(c.plain().name()))}
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

// hashSeed is the same on every node and in every release, or clients would move.
const hashSeed = 1

func (c leaf) draw(l lang, modulus uint32) rule {
	key, next := l.frontend(c.pool.front)
	slot := rule{nft.RandomSlot(nft.Word(next), modulus)}
	if c.hash {
		slot = rule{nft.SourceAddr(l.f, nft.Word(hashWord)), nft.Hash(nft.HashSpec{
			Source: nft.Word(hashWord), Dest: nft.Word(next), Bytes: uint32(l.addr * 4), Modulus: modulus, Seed: hashSeed, Offset: hashBase})}
	}
	return join(key, slot, rule{lookup(c.pool.set().parts()[c.shard]), l.dnat(c.pool.front != byRange)})
}

// outer describes the shared chain of externalTrafficPolicy Local: pods and the
// node itself may use the whole cluster, everybody else only what is here.
type outer struct {
	cluster leaf
	verdict model.Verdict // for pods and the node; cluster counts if Forward
	local   leaf
	other   model.Verdict // for everybody else; local counts if Forward
}

func (o outer) name() string {
	b := append(make([]byte, 0, 32), "xl-"...)
	if o.cluster.masquerade {
		b = append(b, "ext-"...)
	}
	b = append(side(b, o.cluster, o.verdict), '-')
	if o.other == model.Forward {
		b = strconv.AppendUint(b, uint64(o.local.class), 10)
	} else {
		b = append(b, o.other.String()...)
	}
	return string(o.cluster.memory.appendName(b))
}

func side(b []byte, c leaf, v model.Verdict) []byte {
	if v == model.Forward {
		return c.appendName(b)
	}
	c.class = 0
	b = c.appendName(b)
	return append(b[:len(b)-1], v.String()...)
}

// leaves are the chains that o leads to.
func (o outer) leaves() []leaf {
	if o.verdict != model.Forward {
		return nil
	}
	node := o.cluster
	node.masquerade = true
	if o.cluster == node {
		return []leaf{node}
	}
	return []leaf{o.cluster, node}
}

func (o outer) rules(l lang, podsAre *model.LocalDetector) []rule {
	pods, node := ends(o.verdict), ends(o.verdict)
	if ls := o.leaves(); len(ls) > 0 {
		pods, node = does(nft.Goto(ls[0].name())), does(nft.Goto(ls[len(ls)-1].name()))
	}
	var out []rule
	if isPod, some := l.fromPod(podsAre, false); some {
		out = append(out, join(isPod, pods))
	}
	out = append(out, join(fromNode(), node))
	if o.other == model.Forward {
		return append(out, o.local.draws(l)...)
	}
	return append(out, ends(o.other))
}

// guardedPrefix begins the names of the chains that let only source ranges come.
const guardedPrefix = "guarded-"

// guarded holds the clients of a range of ports against its source ranges and
// sends on whom they let in. It comes after the lookup of the range, not before
// all lookups like that of single ports: a port inside may be another Service's.
func guarded(l lang, on nft.Verdict) []rule {
	key, next := l.vip()
	return []rule{
		join(key, rule{nft.SourceAddr(l.f, nft.Word(next)), in("fw-allowed-ranges")}, does(on)),
		does(nft.Drop()),
	}
}

// ends turns a verdict other than Forward into a rule's end. To refuse is to let
// the packet go on untranslated: the filter hooks know the Frontend.
func ends(v model.Verdict) rule {
	if v == model.Drop {
		return does(nft.Drop())
	}
	return does(nft.Return())
}

const rejectChain = "reject-chain"

// rejectRules: a reset, because a TCP client on this host would wait a second
// for the ICMP error to count (docs/design/nftables.md).
func rejectRules(l lang) []rule {
	tcp := rule{nft.MetaL4Proto(nft.Word(0)), nft.Equal(nft.Word(0), []byte{unix.IPPROTO_TCP}), nft.RejectReset()}
	return []rule{tcp, {nft.RejectPort(l.f)}}
}
