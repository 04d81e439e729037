package dataplane

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"strings"

	"github.com/fairlead/fairlead/internal/model"
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

// Same reports whether found is a value, or the digest of it.
func Same(value, found string) bool {
	if value == "" || !strings.HasPrefix(found, digestMark) {
		return value == found
	}
	return found == digestOf(Sum64(value))
}

// ObjectSum is what an object adds to the sum of many, which is the same in whatever order they are added. The digest of a
// value adds what the value does. As a digest, it means something to this process alone.
func ObjectSum(k Key, value string) uint64 {
	return HashValue(k.Kind, k.Family, value).With(hashName(k.ID))
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
	return hashSum(k.Kind, k.Family, sum).With(hashName(k.ID))
}

// ObjectSum is made of two halves, for who sums up very many: objects that have one name, or one value, need its hash once.

// NameHash is the half that an object's ID gives.
type NameHash uint64

// HashName hashes an ID.
func HashName(id []byte) NameHash { return NameHash(maphash.Bytes(seed, id)) }

func hashName(id string) NameHash { return NameHash(maphash.String(seed, id)) }

// ValueHash is the half that all else gives.
type ValueHash uint64

// HashValue hashes a value, or the digest of one, of a kind and family.
func HashValue(k Kind, f model.Family, value string) ValueHash {
	if sum, isDigest := strings.CutPrefix(value, digestMark); isDigest && len(sum) == sumBytes {
		return hashSum(k, f, binary.NativeEndian.Uint64([]byte(sum)))
	}
	return hashSum(k, f, Sum64(value))
}

// With puts the halves together: it is the ObjectSum.
func (v ValueHash) With(name NameHash) uint64 { return mix(uint64(v), uint64(name)) }

const sumBytes = 8 // of a digest, behind its mark

// What is mixed must not be small: kinds are, and the sum of an empty pool is 0. Any numbers with many bits will do; these are the
// beginnings of the fractions of the golden ratio and of pi.
const (
	kindKey  = 0x9e3779b97f4a7c15
	valueKey = 0x243f6a8885a308d3
)

func hashSum(k Kind, f model.Family, sum uint64) ValueHash {
	return ValueHash(mix(sum^valueKey, kindKey^uint64(k)<<8^uint64(f)))
}

// mix makes one number of two, of which one at least nobody can foresee: otherwise it would be a bad hash. Neither half of the
// product is left out: the lower bits of a product tell of the lower bits alone.
func mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}
