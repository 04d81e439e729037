package nftables

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/model"
)

func TestClassIsTheNextPowerOfTwo(t *testing.T) {
	for n, want := range map[int]uint32{0: 1, 1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 8: 8, 9: 16, 5000: 8192, 65536: 65536} {
		if got := classOf(n); got != want {
			t.Errorf("classOf(%d) is %d, want %d", n, got, want)
		}
	}
}

// The lower half of a class must always be full: it is the last resort of a draw.
func TestLowerHalfIsFull(t *testing.T) {
	for n := 1; n < 300; n++ {
		if c := int(classOf(n)); n > c || c > 2 && n <= c/2 || c == 2 && n != 2 {
			t.Errorf("%d slots in class %d", n, c)
		}
	}
}

func TestWeightsAreSlots(t *testing.T) {
	eps := defOf(kindEndpoints)
	for _, c := range []struct {
		name    string
		weights []uint16
		want    []int
	}{
		{"plain", []uint16{1, 1, 1}, []int{1, 1, 1}},
		{"three to one", []uint16{3, 1}, []int{3, 1}},
		{"in common", []uint16{100, 100, 50}, []int{2, 2, 1}},
		{"zero counts as one", []uint16{0, 2}, []int{1, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := dataplanetest.Backends(model.IPv4, 1, len(c.weights))
			for i := range list {
				list[i].Weight = c.weights[i]
			}
			slots, n := packSlots(list, model.IPv4, defOf(kindEndpoints))
			sum := 0
			for i, want := range c.want {
				one, _ := packSlots(list[i:i+1], model.IPv4, eps)
				if got := count(slots, one[:eps.slotWidth(model.IPv4)]); got != want {
					t.Errorf("backend %d has %d slots, want %d", i, got, want)
				}
				sum += want
			}
			if n != sum || len(slots) != n*eps.slotWidth(model.IPv4) {
				t.Errorf("%d slots in %d bytes, want %d", n, len(slots), sum)
			}
		})
	}
}

func count(slots, one string) int {
	n := 0
	for at := 0; at < len(slots); at += len(one) {
		if slots[at:at+len(one)] == one {
			n++
		}
	}
	return n
}

func TestSlotsAreBounded(t *testing.T) {
	eps := defOf(kindEndpoints)
	heavy := make([]model.Backend, 500)
	for i := range heavy {
		heavy[i] = model.Backend{Addr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Port: 80, Weight: uint16(501 + i)}
	}
	slots, n := packSlots(heavy, model.IPv4, eps)
	if n > maxSlots || n < maxSlots/2 {
		t.Errorf("500 heavy backends make %d slots", n)
	}
	first, _ := packSlots(heavy[:1], model.IPv4, eps)
	last, _ := packSlots(heavy[499:], model.IPv4, eps)
	a, b := count(slots, first), count(slots, last)
	if ratio := float64(b) / float64(a); ratio < 1.9 || ratio > 2.1 {
		t.Errorf("weights 501 and 1000 got %d and %d slots", a, b)
	}
	many := make([]model.Backend, maxSlots+10)
	for i := range many {
		many[i] = model.Backend{Addr: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), Port: 80, Weight: 1}
	}
	if _, n := packSlots(many, model.IPv4, eps); n != maxSlots {
		t.Errorf("too many backends make %d slots", n)
	}
}
