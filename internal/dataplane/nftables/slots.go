package nftables

import (
	"math/bits"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// maxSlots bounds the slots of one Frontend. The set's typeof is `mod 65536`.
const maxSlots = 1 << 16

// hashBase is the number of the first slot of consistent hash tables. They are in the
// same set, after all slots that are drawn at random.
const hashBase = maxSlots

// packTable returns the packed endpoints of the places of a consistent hash table.
func packTable(table model.HashTable, list []model.Backend, def *setDef) string {
	b := make([]byte, 0, len(table)*18)
	for _, place := range table {
		b = appendSlot(b, &list[int(place)%len(list)], def)
	}
	return string(b)
}

// appendSlot appends the packed form of an endpoint: its address, and its port in 2 bytes of network byte order unless the set
// is one of port ranges.
func appendSlot(b []byte, to *model.Backend, def *setDef) []byte {
	b = nft.AppendAddr(b, to.Addr)
	if def.ident != identAddrProto {
		b = append(b, byte(to.Port>>8), byte(to.Port))
	}
	return b
}

// classOf returns the size class of n slots: n rounded up to a power of two.
func classOf(n int) uint32 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// packSlots returns the packed slots of a list and their number. The weight of a backend
// is how many slots it gets. Weights are divided by their greatest common divisor, so
// that backends of equal weights get one slot each. Backends beyond maxSlots get none.
func packSlots(list []model.Backend, f model.Family, def *setDef) (string, int) {
	if len(list) > maxSlots {
		list = list[:maxSlots]
	}
	sum, gcd := 0, 0
	for i := range list {
		w := int(max(list[i].Weight, 1))
		sum, gcd = sum+w, common(gcd, w)
	}
	if gcd > 1 {
		sum /= gcd
	}
	scale := func(w int) int { return w }
	if total := sum; total > maxSlots {
		room := maxSlots - len(list) // each backend is then rounded up to at least one slot
		scale = func(w int) int { return max(1, w*room/total) }
		sum = maxSlots
	}
	var few [256]byte // usually large enough; the value is then the only allocation
	b, size := few[:0], min(sum, maxSlots)*def.slotWidth(f)
	if size > len(few) {
		b = make([]byte, 0, size)
	}
	n := 0
	for i := range list {
		for range scale(int(max(list[i].Weight, 1)) / max(gcd, 1)) {
			b = appendSlot(b, &list[i], def)
			n++
		}
	}
	return string(b), n
}

// common returns the greatest common divisor.
func common(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
