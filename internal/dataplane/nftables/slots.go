package nftables

import (
	"math/bits"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// maxSlots is the maximum number of slots of one Frontend: the set's type says mod 65536.
const maxSlots = 1 << 16

// hashBase is the slot at which tables of consistent hash begin. They follow all slots that
// are drawn at random, in the same set.
const hashBase = maxSlots

// packTable packs the endpoint of each place of a table.
func packTable(table model.HashTable, list []model.Backend, def *setDef) string {
	b := make([]byte, 0, len(table)*18)
	for _, place := range table {
		b = appendSlot(b, &list[int(place)%len(list)], def)
	}
	return string(b)
}

func appendSlot(b []byte, to *model.Backend, def *setDef) []byte {
	b = nft.AppendAddr(b, to.Addr)
	if def.ident != identAddrProto {
		b = append(b, byte(to.Port>>8), byte(to.Port))
	}
	return b
}

// classOf returns the size class of n slots: the next power of two.
func classOf(n int) uint32 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// packSlots packs each backend as many times as its weight, and returns the number of
// slots. Weights are divided by their common divisor, so that
// equal weights cost one slot each. Backends beyond maxSlots get none.
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
		room := maxSlots - len(list) // each of them is then rounded up to at least one
		scale = func(w int) int { return max(1, w*room/total) }
		sum = maxSlots
	}
	var few [256]byte // usually large enough, and the value is one copy of it
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

func common(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
