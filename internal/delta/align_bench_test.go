package delta

import (
	"fmt"
	"testing"
)

// BenchmarkAlign lays out a pool of which one element was replaced.
func BenchmarkAlign(b *testing.B) {
	for _, n := range []int{10, 5_000, 50_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			have, want := make([]byte, 0, 8*n), make([]byte, 0, 8*n)
			for i := range n {
				el := []byte{10, byte(i >> 16), byte(i >> 8), byte(i), 31, 144, 0, 0}
				have = append(have, el...)
				if i == 0 {
					el[0] = 11
				}
				want = append(want, el...)
			}
			h, w := string(have), string(append(want[8:], want[:8]...))
			b.ReportAllocs()
			for b.Loop() {
				if align(h, w, 8) == h {
					b.Fatal("nothing changed")
				}
			}
		})
	}
}
