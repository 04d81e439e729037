package nft

import "bytes"

// overlaps reports whether the kernel's set of ranges over a concatenation (pipapo) rejects e: its first or its last key lies
// inside another element. A range around existing ones is accepted. (6.1.192 accepts the inner one too,
// and does not add it.) Plain interval sets are not modelled.
func (s *fakeSet) overlaps(e *Element) bool {
	if s.row.Flags&SetConcat == 0 {
		return false
	}
	for _, old := range s.elems {
		if s.contains(&old, e.Key) || s.contains(&old, lastKey(e)) {
			return true
		}
	}
	return false
}

func lastKey(e *Element) []byte {
	if len(e.KeyEnd) > 0 {
		return e.KeyEnd
	}
	return e.Key
}

// contains compares part by part: a range over a concatenation is a box, not an interval.
func (s *fakeSet) contains(e *Element, key []byte) bool {
	at := 0
	for _, n := range s.row.Fields {
		to := at + int(n)
		if bytes.Compare(key[at:to], e.Key[at:to]) < 0 || bytes.Compare(key[at:to], lastKey(e)[at:to]) > 0 {
			return false
		}
		at += align4(int(n))
	}
	return true
}
