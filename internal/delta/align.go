package delta

import "strings"

// A pool value is a string of slots of equal width. Which element sits in which
// slot has no meaning; an all-zero slot is a hole. align lays the elements of
// want (which has no holes) into slots 0..n-1 so that as many as possible stay
// where have has them: taking one element away costs one move and one removal.
func align(have, want string, width int) string {
	if have == want || have == "" {
		return want
	}
	n := len(want) / width
	left := newBag(want, width)
	out := make([]byte, n*width)
	free := make([]int, 0, 8)
	for i := range n {
		at := i * width
		if at+width <= len(have) && left.take(have[at:at+width]) {
			copy(out[at:], have[at:at+width])
			continue
		}
		free = append(free, at)
	}
	for at := 0; at < len(want) && len(free) > 0; at += width {
		if el := want[at : at+width]; left.take(el) {
			copy(out[free[0]:], el)
			free = free[1:]
		}
	}
	if string(out) == have {
		return have
	}
	return string(out)
}

// samePool tells whether two values hold the same elements, holes apart. For
// plain keys (width 0) only equal values are the same.
func samePool(a, b string, width int) bool {
	if width == 0 || a == "" || b == "" {
		return a == b
	}
	hole := strings.Repeat("\x00", width)
	left := newBag(a, width)
	n := 0
	for at := 0; at+width <= len(a); at += width {
		if a[at:at+width] != hole {
			n++
		}
	}
	for at := 0; at+width <= len(b); at += width {
		el := b[at : at+width]
		if el == hole {
			continue
		}
		if !left.take(el) {
			return false
		}
		n--
	}
	return n == 0
}

// bag is a multiset of slots: linear for the usual few, hashed for many.
type bag struct {
	few   string
	width int
	taken []bool
	many  map[string]int
}

const fewSlots = 32

func newBag(s string, width int) *bag {
	n := len(s) / width
	if n <= fewSlots {
		return &bag{few: s, width: width, taken: make([]bool, n)}
	}
	b := &bag{width: width, many: make(map[string]int, n)}
	for at := 0; at+width <= len(s); at += width {
		b.many[s[at:at+width]]++
	}
	return b
}

// take removes one el, if there is one.
func (b *bag) take(el string) bool {
	if b.many != nil {
		if b.many[el] == 0 {
			return false
		}
		b.many[el]--
		return true
	}
	for i := range b.taken {
		if !b.taken[i] && b.few[i*b.width:(i+1)*b.width] == el {
			b.taken[i] = true
			return true
		}
	}
	return false
}
