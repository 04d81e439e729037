package nftables

import (
	"encoding/binary"
	"encoding/hex"
	"hash"
	"hash/fnv"
)

// digest is a hash that identifies content. Rules cannot be read back as text, so their
// digests are compared instead. It detects accidental changes, not forgeries.
type digest struct{ h hash.Hash64 }

func newDigest() digest { return digest{fnv.New64a()} }

// bytes adds b, preceded by its length. So two neighbours hash differently from their
// concatenation.
func (d digest) bytes(b []byte) {
	d.number(uint64(len(b)))
	d.h.Write(b) // a hash never fails
}

// number adds integers, in 8 bytes each.
func (d digest) number(vs ...uint64) {
	var b [8]byte
	for _, v := range vs {
		binary.LittleEndian.PutUint64(b[:], v)
		d.h.Write(b[:])
	}
}

func (d digest) String() string { return hex.EncodeToString(d.h.Sum(nil)) }
