package delta

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// Whatever two pools hold: the result holds exactly what is wanted, without a
// hole, and as many elements stay in their slots as can.
func TestAlignKeepsWhatCanStay(t *testing.T) {
	const width = 2
	r := rand.New(rand.NewPCG(5, 5))
	element := func(kinds int) string { n := 1 + r.IntN(kinds); return string([]byte{byte(n), byte(n >> 8)}) }
	rounds := 3000
	if testing.Short() {
		rounds = 400
	}
	for round := range rounds {
		kinds := 1 + r.IntN(400)
		var have, want []string
		for range r.IntN(300) {
			have = append(have, element(kinds))
		}
		if r.IntN(2) == 0 { // usually a change of the actual elements, in the same or another order
			want = append(want, have...)
			for range r.IntN(6) {
				switch at := r.IntN(len(want) + 1); {
				case at < len(want) && r.IntN(2) == 0:
					want = append(want[:at], want[at+1:]...)
				default:
					want = append(want[:at], append([]string{element(kinds)}, want[at:]...)...)
				}
			}
			for range r.IntN(3) {
				if len(have) > 0 {
					have[r.IntN(len(have))] = "\x00\x00" // a hole
				}
			}
		} else {
			for range r.IntN(300) {
				want = append(want, element(kinds))
			}
		}
		checkAligned(t, have, want, width)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

func checkAligned(t *testing.T, have, want []string, width int) {
	t.Helper()
	got := align(strings.Join(have, ""), strings.Join(want, ""), width)
	if len(got) != len(want)*width {
		t.Fatalf("%d slots, want %d", len(got)/width, len(want))
	}
	wanted, inFront := map[string]int{}, map[string]int{}
	for _, el := range want {
		wanted[el]++
	}
	couldStay, stayed := 0, 0
	for i, el := range have {
		if i < len(want) && inFront[el] < wanted[el] {
			inFront[el]++
			couldStay++
		}
	}
	for i := range want {
		el := got[i*width : (i+1)*width]
		if i < len(have) && have[i] == el {
			stayed++
		}
		wanted[el]--
		if wanted[el] < 0 {
			t.Fatalf("slot %d holds %q, which is not wanted so often", i, el)
		}
	}
	if len(have) > 0 && stayed < couldStay {
		t.Fatalf("%d elements stay, %d could", stayed, couldStay)
	}
}

// Two pools are the same if each element is in both equally often, wherever it is.
func TestSamePool(t *testing.T) {
	many := strings.Repeat("aabb", fewSlots)
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"aabbcc", "ccaabb", true},
		{"aabb", "aa\x00\x00bb", true}, // a hole is no element
		{"aabb", "aacc", false},
		{"aabb", "aabbaa", false},
		{"aabbaa", "aabb", false},
		{"aa\x00\x00", "aabb", false},
		{"", "aa", false},
		{"", "\x00\x00", false}, // there, with nothing in it
		{"\x00\x00", "", false},
		{many, many[2:] + many[:2], true},
		{many, many[2:] + "cc", false},
		{many, many[2:] + "bb", false},
	} {
		if got := samePool(c.a, c.b, 2); got != c.same {
			t.Errorf("samePool(%q, %q) is %v", c.a, c.b, got)
		}
	}
}
