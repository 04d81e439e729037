package delta

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A short list of differences is put in order in another way than a long one: with the
// same outcome, in which those of one place keep the order in which they were wanted.
func TestFewDifferencesComeInTheOrderOfMany(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for round := range 200 {
		n := 1 + r.IntN(fewDiffs)
		tr := New[string, string](Params[string]{Width: func(string) int { return 0 }, Linger: func(string) time.Duration { return 0 }, Rank: func(k string) uint8 { return k[0] }})
		var changed []Object[string]
		for i := range n {
			key := fmt.Sprintf("%c%d", 'a'+rune(r.IntN(4)), i)
			tr.Set(key, []Object[string]{{key, "1"}}, t0)
			if r.IntN(2) == 0 {
				changed = append(changed, Object[string]{key, []string{"", "2"}[r.IntN(2)]})
			}
		}
		for _, o := range changed { // now there are creations, changes and deletions
			e := tr.entries[o.Key]
			e.have = "1"
			tr.want(e, o.Value)
		}
		few := tr.fewInOrder(tr.placeOf)
		want := slices.Clone(tr.queue)
		slices.SortStableFunc(want, func(a, b *entry[string, string]) int { return tr.placeOf(a) - tr.placeOf(b) })
		for i := range want {
			if few[i].Key != want[i].key {
				t.Fatalf("round %d: place %d is %s, want %s", round, i, few[i].Key, want[i].key)
			}
		}
		for i := range fewDiffs + 1 { // as many as to be counted; they come before all others
			key := fmt.Sprintf("!%d", i)
			tr.Set(key, []Object[string]{{key, "1"}}, t0)
		}
		many := tr.inOrder(tr.placeOf)
		if many = many[fewDiffs+1:]; !slices.Equal(few, many) {
			t.Fatalf("round %d: few %v, among many %v", round, few, many)
		}
	}
}
