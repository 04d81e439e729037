package dataplane

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"strings"

	"github.com/fairlead/fairlead/internal/model"
)

// A Survey of a hundred thousand rules would keep the text of each rule only to compare it once. So it may report a digest
// instead of an actual value, which takes no memory while the value is read. A digest is valid only in this process,
// because its seed is random.

// seed is the random seed of all digests and checksums of this process.
var seed = maphash.MakeSeed()

// digestMark is the prefix of every digest; no driver has a value with this prefix.
const digestMark = "\x00digest\x00"

// Digester computes the digest of a value from its pieces.
type Digester struct{ h maphash.Hash }

// NewDigester returns a Digester without pieces.
func NewDigester() *Digester {
	d := &Digester{}
	d.h.SetSeed(seed)
	return d
}

// Reset discards all pieces.
func (d *Digester) Reset() { d.h.Reset() }

// Add appends the next piece.
func (d *Digester) Add(piece []byte) { _, _ = d.h.Write(piece) } // a hash returns no error

// Sum64 returns the digest as a number.
func (d *Digester) Sum64() uint64 { return d.h.Sum64() }

// Digest returns the digest of the pieces, which a driver reports instead of the value.
func (d *Digester) Digest() string { return digestOf(d.h.Sum64()) }

// Sum64 returns the number that a Digester returns for the whole value.
func Sum64(value string) uint64 { return maphash.String(seed, value) }

func digestOf(sum uint64) string {
	return string(binary.NativeEndian.AppendUint64([]byte(digestMark), sum))
}

// Same reports whether found is equal to value or to its digest.
func Same(value, found string) bool {
	if value == "" || !strings.HasPrefix(found, digestMark) {
		return value == found
	}
	return found == digestOf(Sum64(value))
}

// ObjectSum returns the checksum of an object. The sum of many of them does not depend on their order. A value and its
// digest have the same checksum. Like a digest, it is valid only in this process.
func ObjectSum(k Key, value string) uint64 {
	return HashValue(k.Kind, k.Family, value).With(hashName(k.ID))
}

// PoolSum returns the checksum of an object whose value consists of slots of width bytes. It does not depend on which slot
// holds which element: some kernels return them in an order of their own, and every comparison ignores the order.
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

// ObjectSum consists of two halves. A caller that computes very many needs the hash of a common name or value only once.

// NameHash is the half of an ObjectSum that depends on the object's ID.
type NameHash uint64

// HashName returns the hash of an ID.
func HashName(id []byte) NameHash { return NameHash(maphash.Bytes(seed, id)) }

func hashName(id string) NameHash { return NameHash(maphash.String(seed, id)) }

// ValueHash is the half of an ObjectSum that depends on kind, family and value.
type ValueHash uint64

// HashValue returns the hash of a kind, a family and a value or its digest.
func HashValue(k Kind, f model.Family, value string) ValueHash {
	if sum, isDigest := strings.CutPrefix(value, digestMark); isDigest && len(sum) == sumBytes {
		return hashSum(k, f, binary.NativeEndian.Uint64([]byte(sum)))
	}
	return hashSum(k, f, Sum64(value))
}

// With returns the ObjectSum of the two halves.
func (v ValueHash) With(name NameHash) uint64 { return mix(uint64(v), uint64(name)) }

const sumBytes = 8 // length of a digest in bytes, after digestMark

// The arguments of mix must not be small numbers, but kinds are small and the sum of an empty pool is 0. These constants
// make them large. Any numbers with many bits set are suitable; these are the first bits of the fractions of the golden
// ratio and of pi.
const (
	kindKey  = 0x9e3779b97f4a7c15
	valueKey = 0x243f6a8885a308d3
)

// hashSum returns the hash of a kind, a family and the hash of a value.
func hashSum(k Kind, f model.Family, sum uint64) ValueHash {
	return ValueHash(mix(sum^valueKey, kindKey^uint64(k)<<8^uint64(f)))
}

// mix returns a hash of two numbers. At least one of them must be unpredictable, otherwise mix is a weak hash. It uses both
// halves of the product, because the lower bits of a product depend only on the lower bits of the factors.
func mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}
