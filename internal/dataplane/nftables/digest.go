package nftables

import (
	"encoding/binary"
	"encoding/hex"
	"hash"
	"hash/fnv"
)

// digest identifies content. Rules cannot be read back as text, so their digests are
// compared instead. It protects against accidents, not against forgery.
type digest struct{ h hash.Hash64 }

func newDigest() digest { return digest{fnv.New64a()} }

// bytes adds b and its length, so that adjacent values cannot be confused.
func (d digest) bytes(b []byte) {
	d.number(uint64(len(b)))
	d.h.Write(b) // a hash never fails
}

func (d digest) number(vs ...uint64) {
	var b [8]byte
	for _, v := range vs {
		binary.LittleEndian.PutUint64(b[:], v)
		d.h.Write(b[:])
	}
}

func (d digest) String() string { return hex.EncodeToString(d.h.Sum(nil)) }
