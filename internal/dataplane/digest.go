package dataplane

import (
	"encoding/binary"
	"hash/maphash"
	"strings"
)

// A Survey of a hundred thousand rules would hold the text of each only to have it compared once. So it may report of a
// value that is there a digest in its place, which takes no memory while it is read. A digest means something to this
// process alone.

var seed = maphash.MakeSeed()

// digestMark begins every digest; no driver has a value that begins so.
const digestMark = "\x00digest\x00"

// Digester sums up a value that comes in pieces.
type Digester struct{ h maphash.Hash }

// NewDigester makes one that has taken nothing yet.
func NewDigester() *Digester {
	d := &Digester{}
	d.h.SetSeed(seed)
	return d
}

// Reset forgets what was taken.
func (d *Digester) Reset() { d.h.Reset() }

// Add takes the next piece.
func (d *Digester) Add(piece []byte) { _, _ = d.h.Write(piece) } // a hash never fails

// Sum64 is the digest as a number.
func (d *Digester) Sum64() uint64 { return d.h.Sum64() }

// Digest is the digest of what was taken, to be reported in the place of the value.
func (d *Digester) Digest() string { return digestOf(d.h.Sum64()) }

// Sum64 is what a Digester has for a value as a whole.
func Sum64(value string) uint64 { return maphash.String(seed, value) }

func digestOf(sum uint64) string {
	return string(binary.NativeEndian.AppendUint64([]byte(digestMark), sum))
}

// Same tells whether found is a value, or the digest of it.
func Same(value, found string) bool {
	if value == "" || !strings.HasPrefix(found, digestMark) {
		return value == found
	}
	return found == digestOf(Sum64(value))
}

// ObjectSum is what an object adds to the sum of many, which is the same in whatever order they are added. The digest of a
// value adds what the value does. As a digest, it means something to this process alone.
func ObjectSum(k Key, value string) uint64 {
	if sum, isDigest := strings.CutPrefix(value, digestMark); isDigest && len(sum) == sumBytes {
		return sumWith(k, binary.NativeEndian.Uint64([]byte(sum)))
	}
	return sumWith(k, Sum64(value))
}

// PoolSum is the same of an object whose value is slots of so many bytes each. Where an element lies in it adds nothing:
// some kernels give them in an order of their own, and no comparison minds.
func PoolSum(k Key, value string, width int) uint64 {
	var sum uint64
	for at := 0; at < len(value); at += width {
		element := value[at:min(at+width, len(value))]
		if strings.TrimLeft(element, "\x00") != "" { // else it is a hole
			sum += Sum64(element)
		}
	}
	return sumWith(k, sum)
}

const (
	sumBytes = 8
	shortID  = 64 // longer ones are hashed by themselves, so that nothing is allocated
)

func sumWith(k Key, value uint64) uint64 {
	var room [2 + sumBytes + shortID]byte
	b := binary.NativeEndian.AppendUint64(append(room[:0], byte(k.Kind), byte(k.Family)), value)
	if len(k.ID) > shortID {
		b = binary.NativeEndian.AppendUint64(b, maphash.String(seed, k.ID))
	} else {
		b = append(b, k.ID...)
	}
	return maphash.Bytes(seed, b)
}
