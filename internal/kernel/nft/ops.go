package nft

import "golang.org/x/sys/unix"

// NewTable adds a table. An existing table stays unchanged, including its user data.
func (b *Batch) NewTable(t TableRef, userData []byte) {
	b.begin(OpNewTable, t.Family)
	b.buf = appendString(b.buf, unix.NFTA_TABLE_NAME, t.Name)
	if len(userData) > 0 {
		b.buf = appendBytes(b.buf, nftaTableUserdata, userData)
	}
	b.end()
}

// newTable adds a table with flags.
func (b *Batch) newTable(t TableRef, flags TableFlags) {
	b.begin(OpNewTable, t.Family)
	b.buf = appendString(b.buf, unix.NFTA_TABLE_NAME, t.Name)
	if flags != 0 {
		b.buf = appendU32(b.buf, unix.NFTA_TABLE_FLAGS, uint32(flags))
	}
	b.end()
}

// DelTable deletes a table and everything in it.
func (b *Batch) DelTable(t TableRef) {
	b.begin(OpDelTable, t.Family)
	b.buf = appendString(b.buf, unix.NFTA_TABLE_NAME, t.Name)
	b.end()
}

// NewSet adds a set or map.
func (b *Batch) NewSet(s SetSpec) {
	b.setID++
	b.begin(OpNewSet, s.Ref.Table.Family)
	b.buf = s.append(b.buf, b.setID)
	b.end()
}

// DelSet deletes a set with its elements; EBUSY while a rule uses it.
func (b *Batch) DelSet(s SetRef) {
	b.begin(OpDelSet, s.Table.Family)
	b.buf = appendString(b.buf, unix.NFTA_SET_TABLE, s.Table.Name)
	b.buf = appendString(b.buf, unix.NFTA_SET_NAME, s.Name)
	b.end()
}

// FlushSet deletes all elements of a set.
func (b *Batch) FlushSet(s SetRef) {
	b.begin(OpFlushSet, s.Table.Family)
	b.buf = appendString(b.buf, unix.NFTA_SET_ELEM_LIST_TABLE, s.Table.Name)
	b.buf = appendString(b.buf, unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	b.end()
}

// NewChain adds a chain.
func (b *Batch) NewChain(c ChainSpec) {
	b.begin(OpNewChain, c.Ref.Table.Family)
	b.buf = c.append(b.buf)
	b.end()
}

// DelChain deletes a chain with its rules; EBUSY while a rule or an element jumps to it.
func (b *Batch) DelChain(c ChainRef) {
	b.begin(OpDelChain, c.Table.Family)
	b.buf = appendString(b.buf, unix.NFTA_CHAIN_TABLE, c.Table.Name)
	b.buf = appendString(b.buf, unix.NFTA_CHAIN_NAME, c.Name)
	b.end()
}

// FlushChain deletes all rules of a chain.
func (b *Batch) FlushChain(c ChainRef) {
	b.begin(OpFlushChain, c.Table.Family)
	b.buf = appendString(b.buf, unix.NFTA_RULE_TABLE, c.Table.Name)
	b.buf = appendString(b.buf, unix.NFTA_RULE_CHAIN, c.Name)
	b.end()
}

// NewRule adds a rule, also if an equal one exists: rules have no identity.
func (b *Batch) NewRule(r RuleSpec) {
	b.begin(OpNewRule, r.Chain.Table.Family)
	if r.First {
		b.clearFlag(unix.NLM_F_APPEND)
	}
	b.buf = r.append(b.buf)
	b.end()
}

// DelRule deletes the rule with a handle from a dump.
func (b *Batch) DelRule(c ChainRef, handle uint64) {
	b.begin(OpDelRule, c.Table.Family)
	b.buf = appendString(b.buf, unix.NFTA_RULE_TABLE, c.Table.Name)
	b.buf = appendString(b.buf, unix.NFTA_RULE_CHAIN, c.Name)
	b.buf = appendU64(b.buf, unix.NFTA_RULE_HANDLE, handle)
	b.end()
}

// AddElement adds an element: EEXIST if the key has other data. To update data, delete and add in one batch.
func (b *Batch) AddElement(s SetRef, e *Element) { b.element(OpAddElement, s, e) }

// DelElement deletes an element by its key (and KeyEnd, and ElementIntervalEnd).
func (b *Batch) DelElement(s SetRef, e *Element) { b.element(OpDelElement, s, e) }
