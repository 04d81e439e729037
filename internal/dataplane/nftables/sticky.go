package nftables

import (
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// leafChain emits the chain that l describes and returns its name. The chain of a
// Service port with affinity also needs its map of clients, the chain that looks up the
// client, and the shared chain that draws when no endpoint is remembered.
func (r *frontend) leafChain(l leaf) (name string) {
	if !l.sticky() {
		c := r.d.chains.leaf(r.fam, l, r.view)
		r.emit(c.object(kindLeafChain, r.fam))
		return c.name
	}
	r.recalls(l)
	lang, bits := langOf(r.fam), markBits(r.view)
	name = l.name()
	r.sticky(kindLeafChain, name, func() []rule { return l.rules(lang, bits) })
	return name
}

// outerChain emits the chain of externalTrafficPolicy Local and returns its name.
func (r *frontend) outerChain(o outer) (name string) {
	if !o.cluster.sticky() {
		c := r.d.chains.outer(r.fam, o, r.view)
		r.emit(c.object(kindOuterChain, r.fam))
		return c.name
	}
	if o.other == model.Forward {
		r.recalls(o.local)
	}
	lang, pods, counted := langOf(r.fam), r.view.Local, r.view.CountRefusals // the view may change before the chain is written
	name = o.name()
	r.sticky(kindOuterChain, name, func() []rule { return o.rules(lang, &pods, counted) })
	return name
}

// recalls emits the objects that the rules of a sticky leaf refer to.
func (r *frontend) recalls(l leaf) {
	r.put(kindClients, l.memory.clients(), clientsDigest(r.fam))
	r.emit(r.d.chains.leaf(r.fam, l.plain(), r.view).object(kindLeafChain, r.fam))
	lang := langOf(r.fam)
	r.sticky(kindLeafChain, l.memory.recall(l.pool), func() []rule { return recallRules(lang, l.memory, l.pool) })
}

// learn emits the objects that store the clients of a Frontend with affinity.
func (r *frontend) learn() {
	if !r.remembers() {
		return
	}
	m, lang, protocol := memoryOf(r.f), langOf(r.fam), r.f.Key.Protocol
	timeout := max(r.f.AffinityTimeout.Truncate(time.Second), time.Second)
	r.sticky(kindLeafChain, m.learn(), func() []rule { return learnRules(lang, m, protocol, timeout) })
	r.put(r.of(kindAffinity, kindAffinityNodePort), r.id, m.learn())
}

// sticky emits a chain of one Service port as two objects: the chain and its rules.
// Kernels before 6.2 must not delete a chain together with an element that points to
// it. When the chain is no longer desired, its rules and the map of clients are deleted
// at once; the empty chain lingers.
func (r *frontend) sticky(chains dataplane.Kind, name string, rules func() []rule) {
	c := r.d.chains.sticky(r.fam, name, rules)
	r.put(chains, name, noRules)
	r.emit(c.object(kindStickyRules, r.fam))
}
