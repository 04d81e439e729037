package nftables

import (
	"encoding/hex"
	"maps"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// chainBook caches shared chains by description, because ten thousand Frontends use
// the same dozen. It keeps the functions that make their rules by digest, because an
// Op carries only the digest. The rules themselves are not cached: a node may use
// a thousand chains over time, and each is written once.
type chainBook struct {
	terms  terms // under which the shared chains below were written
	leaves map[familyOf[leaf]]chain
	outers map[familyOf[outer]]chain
	rules  map[string]func() []rule
	// own holds the functions for the chains of one Service port. The chains of both families
	// may have the same digest, so each family has its own rules.
	own map[familyOf[string]]func() []rule
}

type familyOf[T comparable] struct {
	f model.Family
	v T
}

// chain is the object of one chain.
type chain struct{ name, digest string }

func (c chain) object(k dataplane.Kind, f model.Family) dataplane.Object {
	return dataplane.Object{Key: dataplane.Key{Kind: k, Family: f, ID: c.name}, Value: c.digest}
}

func newChainBook() chainBook {
	b := chainBook{
		leaves: map[familyOf[leaf]]chain{}, outers: map[familyOf[outer]]chain{},
		rules: map[string]func() []rule{}, own: map[familyOf[string]]func() []rule{},
	}
	b.rules[noRules] = func() []rule { return nil }
	return b
}

// under drops the cached shared chains if they were written under other terms.
func (b *chainBook) under(t terms) {
	if b.terms == t {
		return
	}
	b.terms = t
	clear(b.leaves)
	clear(b.outers)
}

func (b *chainBook) leaf(f model.Family, l leaf, v *model.NodeView) chain {
	b.under(termsOf(v))
	at := familyOf[leaf]{f, l}
	c, known := b.leaves[at]
	if !known {
		bits := markBits(v)
		c = chain{l.name(), b.write(func() []rule { return l.rules(langOf(f), bits) })}
		b.leaves[at] = c
	}
	return c
}

func (b *chainBook) outer(f model.Family, o outer, v *model.NodeView) chain {
	b.under(termsOf(v))
	at := familyOf[outer]{f, o}
	c, known := b.outers[at]
	if !known {
		pods, counted := v.Local, v.CountRefusals // v may change before the chain is written
		c = chain{o.name(), b.write(func() []rule { return o.rules(langOf(f), &pods, counted) })}
		b.outers[at] = c
	}
	return c
}

// sticky caches the rules of a chain of one Service port. There may be ten thousand
// of these, so an entry is kept only until the chain leaves the kernel (forget).
func (b *chainBook) sticky(f model.Family, name string, rules func() []rule) chain {
	sum := digestFor(name, true)
	for _, r := range rules() {
		sum.add(tag(r))
	}
	digest := sum.String()
	b.own[familyOf[string]{f, digest}] = rules
	return chain{name, digest}
}

// forget drops the rules of a sticky chain that is no longer in the kernel.
func (b *chainBook) forget(f model.Family, digest string) {
	delete(b.own, familyOf[string]{f, digest})
}

// keep drops the rules of all sticky chains of a family except the wanted ones.
func (b *chainBook) keep(f model.Family, wanted map[string]struct{}) {
	maps.DeleteFunc(b.own, func(at familyOf[string], _ func() []rule) bool {
		_, keep := wanted[at.v]
		return at.f == f && !keep
	})
}

// rulesOf returns the function that makes the rules of a chain, and whether it is known.
func (b *chainBook) rulesOf(o *dataplane.Op) (rules func() []rule, known bool) {
	if o.Key.Kind == kindStickyRules {
		rules, known = b.own[familyOf[string]{o.Key.Family, o.Want}]
		return rules, known
	}
	rules, known = b.rules[o.Want]
	return rules, known
}

// write caches the function that makes a chain's rules and returns the digest of the rules.
func (b *chainBook) write(rules func() []rule) string {
	sum := newChainDigest()
	for _, r := range rules() {
		sum.add(tag(r))
	}
	digest := sum.String()
	b.rules[digest] = rules
	return digest
}

// noRules is the digest of a chain without rules.
const noRules = "00cbf29ce484222325"

// tag returns the comment by which Load recognises a rule.
func tag(r rule) []byte {
	h := newDigest()
	for _, e := range r {
		h.bytes(e)
	}
	return nft.Comment(h.String())
}

// chainDigest is the digest of the comments of a chain's rules, as written or as read. It
// changes if a rule is added, removed, moved or replaced.
type chainDigest struct {
	digest
	n int
}

func newChainDigest() chainDigest { return chainDigest{digest: newDigest()} }

// digestFor returns a new digest of a chain. The rules of a sticky chain are cached by
// digest until the chain is deleted, so it includes the name to be unique.
func digestFor(name string, sticky bool) chainDigest {
	c := newChainDigest()
	if sticky {
		c.bytes([]byte(name))
	}
	return c
}

func (c *chainDigest) add(userData []byte) {
	c.bytes(userData)
	c.n++
}

func (c *chainDigest) String() string {
	return hex.EncodeToString(c.h.Sum([]byte{byte(c.n)}))
}
