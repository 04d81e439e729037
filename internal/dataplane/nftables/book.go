package nftables

import (
	"encoding/hex"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// chainBook remembers shared chains by description, because ten thousand
// Frontends ask for the same dozen, and content by digest, because an Op carries
// only the digest. Both are pure functions, so that forgetting costs only time.
type chainBook struct {
	terms  terms // under which the shared chains below were written
	leaves map[familyOf[leaf]]chain
	outers map[familyOf[outer]]chain
	learns map[familyOf[time.Duration]]chain
	rules  map[string][]taggedRule
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

// taggedRule is a rule with the comment by which Load knows it again.
type taggedRule struct {
	exprs    rule
	userData []byte
}

func newChainBook() chainBook {
	return chainBook{
		leaves: map[familyOf[leaf]]chain{}, outers: map[familyOf[outer]]chain{},
		learns: map[familyOf[time.Duration]]chain{}, rules: map[string][]taggedRule{},
	}
}

// under drops the shared chains if they were written under other terms.
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
		c = chain{l.name(), b.write(l.rules(langOf(f), markBits(v)))}
		b.leaves[at] = c
	}
	return c
}

func (b *chainBook) outer(f model.Family, o outer, v *model.NodeView) chain {
	b.under(termsOf(v))
	at := familyOf[outer]{f, o}
	c, known := b.outers[at]
	if !known {
		c = chain{o.name(), b.write(o.rules(langOf(f), v))}
		b.outers[at] = c
	}
	return c
}

func (b *chainBook) learn(f model.Family, timeout time.Duration) chain {
	at := familyOf[time.Duration]{f, timeout}
	c, known := b.learns[at]
	if !known {
		c = chain{learnName(timeout), b.write(learnRules(langOf(f), timeout))}
		b.learns[at] = c
	}
	return c
}

// write files the rules of a chain and gives their digest.
func (b *chainBook) write(rules []rule) string {
	tagged := make([]taggedRule, 0, len(rules))
	sum := newChainDigest()
	for _, r := range rules {
		h := newDigest()
		for _, e := range r {
			h.bytes(e)
		}
		t := taggedRule{exprs: r, userData: nft.Comment(h.String())}
		sum.add(t.userData)
		tagged = append(tagged, t)
	}
	digest := sum.String()
	b.rules[digest] = tagged
	return digest
}

// chainDigest sums up the comments of a chain's rules, as written or as read: so
// an added, removed, moved or replaced rule shows.
type chainDigest struct {
	digest
	n int
}

func newChainDigest() chainDigest { return chainDigest{digest: newDigest()} }

func (c *chainDigest) add(userData []byte) {
	c.bytes(userData)
	c.n++
}

func (c *chainDigest) String() string {
	return hex.EncodeToString(c.h.Sum([]byte{byte(c.n)}))
}
