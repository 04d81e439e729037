package nftables

import (
	"math/bits"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// maxSlots bounds the slots of one Frontend: the set's type says mod 65536.
const maxSlots = 1 << 16

// classOf is the size class of n slots: the next power of two.
func classOf(n int) uint32 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// packSlots writes each backend as often as its weight says, and tells how many
// slots that makes. Weights are divided by what they have in common, so that
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
		room := maxSlots - len(list) // each of them is then rounded up to one at least
		scale = func(w int) int { return max(1, w*room/total) }
		sum = maxSlots
	}
	b := make([]byte, 0, min(sum, maxSlots)*def.slotWidth(f))
	n := 0
	for i := range list {
		for range scale(int(max(list[i].Weight, 1)) / max(gcd, 1)) {
			b = nft.AppendAddr(b, list[i].Addr)
			if def.ident != identAddrProto {
				b = append(b, byte(list[i].Port>>8), byte(list[i].Port))
			}
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
