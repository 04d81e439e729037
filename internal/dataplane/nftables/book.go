package nftables

import (
	"encoding/hex"
	"maps"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// chainBook is a cache of chains. It holds shared chains by description, because ten
// thousand Frontends use the same dozen. It holds the functions that return their rules
// by digest, because an Op carries only the digest. The rules themselves are not
// cached: a node may use a thousand chains over time, and each is written once.
type chainBook struct {
	terms  terms // for which the shared chains below were rendered
	leaves map[familyOf[leaf]]chain
	outers map[familyOf[outer]]chain
	rules  map[string]func() []rule
	// own holds the rule functions of sticky chains: chains of one Service port. Chains
	// of both families may have the same digest, so the key includes the family.
	own map[familyOf[string]]func() []rule
}

// familyOf is a map key that belongs to one family.
type familyOf[T comparable] struct {
	f model.Family
	v T
}

// chain is the name of a chain and the digest of its rules.
type chain struct{ name, digest string }

// object returns the chain as an object. The digest of the rules is its value.
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

// under drops the cached shared chains if they were rendered for other terms.
func (b *chainBook) under(t terms) {
	if b.terms == t {
		return
	}
	b.terms = t
	clear(b.leaves)
	clear(b.outers)
}

// leaf returns the shared chain that l describes.
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

// outer returns the shared chain that o describes.
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

// sticky stores the rule function of a chain of one Service port and returns the chain.
// There may be ten thousand of these, so they are stored only until the chain's rules
// are deleted from the kernel (forget).
func (b *chainBook) sticky(f model.Family, name string, rules func() []rule) chain {
	sum := digestFor(name, true)
	for _, r := range rules() {
		sum.add(tag(r))
	}
	digest := sum.String()
	b.own[familyOf[string]{f, digest}] = rules
	return chain{name, digest}
}

// forget drops the rule function of a sticky chain whose rules were deleted from the kernel.
func (b *chainBook) forget(f model.Family, digest string) {
	delete(b.own, familyOf[string]{f, digest})
}

// keep drops the rule functions of the sticky chains of a family, except those whose
// digest is in wanted.
func (b *chainBook) keep(f model.Family, wanted map[string]struct{}) {
	maps.DeleteFunc(b.own, func(at familyOf[string], _ func() []rule) bool {
		_, keep := wanted[at.v]
		return at.f == f && !keep
	})
}

// rulesOf returns the function that returns the desired rules of an op's chain, and
// reports whether it is known.
func (b *chainBook) rulesOf(o *dataplane.Op) (rules func() []rule, known bool) {
	if o.Key.Kind == kindStickyRules {
		rules, known = b.own[familyOf[string]{o.Key.Family, o.Want}]
		return rules, known
	}
	rules, known = b.rules[o.Want]
	return rules, known
}

// write stores the rule function of a chain and returns the digest of its rules.
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

// tag returns the comment by which Load identifies a rule: a digest of its expressions.
func tag(r rule) []byte {
	h := newDigest()
	for _, e := range r {
		h.bytes(e)
	}
	return nft.Comment(h.String())
}

// chainDigest is the digest of the comments of a chain's rules, in order, desired or
// actual. So it changes if a rule is added, removed, moved or replaced.
type chainDigest struct {
	digest
	n int
}

func newChainDigest() chainDigest { return chainDigest{digest: newDigest()} }

// digestFor returns the initial state of a chain's digest. The digest of a sticky chain
// includes its name: sticky rules are stored by digest until they are deleted, so no
// two chains may have the same one.
func digestFor(name string, sticky bool) chainDigest {
	c := newChainDigest()
	if sticky {
		c.bytes([]byte(name))
	}
	return c
}

// add adds the comment of the next rule.
func (c *chainDigest) add(userData []byte) {
	c.bytes(userData)
	c.n++
}

func (c *chainDigest) String() string {
	return hex.EncodeToString(c.h.Sum([]byte{byte(c.n)}))
}
