package nft

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// newChain accepts an existing chain unless its kind would change; the kernel counts that as a change.
func (tx *fakeTx) newChain(c Chain) unix.Errno {
	t := tx.tables[c.Ref.Table]
	if t == nil {
		return unix.ENOENT
	}
	if old := t.chains[c.Ref.Name]; old != nil {
		if c.Hook != nil && (old.row.Hook == nil || *c.Hook != *old.row.Hook) {
			return unix.EEXIST
		}
		tx.changed = true
		return 0
	}
	tx.handle++
	c.Handle = tx.handle
	t.chains[c.Ref.Name] = &fakeChain{row: c}
	tx.done(func() { delete(t.chains, c.Ref.Name) })
	return 0
}

func (tx *fakeTx) chain(ref ChainRef) *fakeChain {
	if t := tx.tables[ref.Table]; t != nil {
		return t.chains[ref.Name]
	}
	return nil
}

// delChain deletes a chain and its rules; EBUSY while a rule or an element jumps to it.
func (tx *fakeTx) delChain(ref ChainRef) unix.Errno {
	c := tx.chain(ref)
	if c == nil {
		return unix.ENOENT
	}
	if c.refs > 0 {
		return unix.EBUSY
	}
	t := tx.tables[ref.Table]
	tx.dropRules(c, 0, len(c.rules))
	delete(t.chains, ref.Name)
	tx.done(func() { t.chains[ref.Name] = c })
	return 0
}

func (tx *fakeTx) flushChain(ref ChainRef) unix.Errno {
	c := tx.chain(ref)
	if c == nil {
		return unix.ENOENT
	}
	tx.dropRules(c, 0, len(c.rules))
	return 0
}

func (tx *fakeTx) delRule(r Rule) unix.Errno {
	c := tx.chain(r.Chain)
	if c == nil {
		return unix.ENOENT
	}
	i := slices.IndexFunc(c.rules, func(x *fakeRule) bool { return x.row.Handle == r.Handle })
	if i < 0 {
		return unix.ENOENT
	}
	tx.dropRules(c, i, i+1)
	return 0
}

func (tx *fakeTx) dropRules(c *fakeChain, from, to int) {
	if from == to {
		return
	}
	old := c.rules
	for _, r := range old[from:to] {
		r.refer(-1)
	}
	c.rules = slices.Concat(old[:from], old[to:])
	tx.done(func() {
		c.rules = old
		for _, r := range old[from:to] {
			r.refer(1)
		}
	})
}

func (tx *fakeTx) newRule(row Rule, first bool) unix.Errno {
	c := tx.chain(row.Chain)
	if c == nil {
		return unix.ENOENT
	}
	r := &fakeRule{row: row}
	if e := tx.resolve(r); e != 0 {
		return e
	}
	tx.handle++
	r.row.Handle = tx.handle
	r.refer(1)
	old := c.rules
	if first {
		c.rules = slices.Concat([]*fakeRule{r}, old)
	} else {
		c.rules = slices.Concat(old, []*fakeRule{r})
	}
	tx.done(func() {
		c.rules = old
		r.refer(-1)
	})
	return 0
}

func (r *fakeRule) refer(n int) {
	for _, c := range r.chains {
		c.refs += n
	}
	for _, s := range r.sets {
		s.refs += n
	}
	for _, f := range r.flows {
		f.refs += n
	}
}

// resolve looks up the sets and chains that a rule names.
func (tx *fakeTx) resolve(r *fakeRule) unix.Errno {
	var errno unix.Errno
	ok := eachExpr(r.row.Exprs, func(name string, data []byte) {
		var e unix.Errno
		switch name {
		case "lookup":
			e = tx.resolveSet(r, data, unix.NFTA_LOOKUP_SET)
		case "dynset":
			e = tx.resolveSet(r, data, unix.NFTA_DYNSET_SET_NAME)
		case "flow_offload":
			e = tx.resolveFlow(r, data)
		case "immediate":
			e = tx.resolveVerdict(r, data)
		}
		if errno == 0 {
			errno = e
		}
	})
	if !ok {
		return unix.EINVAL
	}
	return errno
}

func (tx *fakeTx) resolveSet(r *fakeRule, data []byte, attr uint16) unix.Errno {
	var s *fakeSet
	netlink.EachAttr(data, func(typ uint16, d []byte) {
		if typ == attr {
			s = tx.set(r.row.Chain.Table.Set(string(cstr(d))))
		}
	})
	if s == nil {
		return unix.ENOENT
	}
	r.sets = append(r.sets, s)
	return 0
}

func (tx *fakeTx) resolveVerdict(r *fakeRule, data []byte) unix.Errno {
	var v Verdict
	netlink.EachAttr(data, func(typ uint16, d []byte) {
		if typ == unix.NFTA_IMMEDIATE_DATA {
			v = (&elementDecoder{chains: map[string]string{}}).verdict(d)
		}
	})
	if v.Chain == "" {
		return 0
	}
	c, e := tx.target(r.row.Chain.Table, v)
	if e == 0 {
		r.chains = append(r.chains, c)
	}
	return e
}

// target returns the chain that a verdict jumps to: it must exist and must not be a base chain.
func (tx *fakeTx) target(t TableRef, v Verdict) (*fakeChain, unix.Errno) {
	c := tx.chain(t.Chain(v.Chain))
	switch {
	case c == nil:
		return nil, unix.ENOENT
	case c.row.Hook != nil:
		return nil, unix.EOPNOTSUPP
	}
	return c, 0
}
