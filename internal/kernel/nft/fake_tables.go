package nft

import "golang.org/x/sys/unix"

func (tx *fakeTx) newTable(t Table) unix.Errno {
	if tx.tables[t.Ref] != nil {
		return 0
	}
	tx.handle++
	t.Handle = tx.handle
	tx.tables[t.Ref] = &fakeTable{row: t, sets: map[string]*fakeSet{}, chains: map[string]*fakeChain{},
		flows: map[string]*fakeFlow{}}
	tx.done(func() { delete(tx.tables, t.Ref) })
	return 0
}

func (tx *fakeTx) delTable(t TableRef) unix.Errno {
	old := tx.tables[t]
	if old == nil {
		return unix.ENOENT
	}
	delete(tx.tables, t)
	tx.done(func() { tx.tables[t] = old })
	return 0
}

// newSet accepts an existing set if it is the same; the kernel (since 6.3) counts that as a change, because its timeout may differ.
func (tx *fakeTx) newSet(s Set) unix.Errno {
	t := tx.tables[s.Ref.Table]
	if t == nil {
		return unix.ENOENT
	}
	if s.DataType == dataVerdict {
		s.DataLen = verdictLen
	}
	if old := t.sets[s.Ref.Name]; old != nil {
		o := &old.row
		if o.Flags != s.Flags || o.KeyLen != s.KeyLen || o.KeyType != s.KeyType || o.DataType != s.DataType || o.DataLen != s.DataLen {
			return unix.EEXIST
		}
		tx.changed = true
		if size := o.Size; s.Size > 0 && !tx.FixedSizes { // since 6.5
			o.Size = s.Size
			tx.done(func() { o.Size = size })
		}
		return 0
	}
	if s.KeyLen == 0 || s.KeyLen > 64 || s.DataLen > 64 {
		return unix.EINVAL
	}
	tx.handle++
	s.Handle = tx.handle
	t.sets[s.Ref.Name] = &fakeSet{row: s, elems: map[string]Element{}}
	tx.done(func() { delete(t.sets, s.Ref.Name) })
	return 0
}

// verdictLen is the length of a verdict in a dump.
const verdictLen = 16

func (tx *fakeTx) delSet(ref SetRef) unix.Errno {
	s := tx.set(ref)
	if s == nil {
		return unix.ENOENT
	}
	if s.refs > 0 {
		return unix.EBUSY
	}
	t := tx.tables[ref.Table]
	tx.flushSet(s)
	delete(t.sets, ref.Name)
	tx.done(func() { t.sets[ref.Name] = s })
	return 0
}
