package delta

import "strings"

// A pool value is a string of slots of equal width. Which element sits in which
// slot has no meaning; an all-zero slot is a hole. align lays the elements of
// want (which has no holes) into slots 0..n-1 so that as many as possible keep
// their slot in have: removing one element costs one move and one removal.
// With width 2, align("aabbccdd", "bbccdd") is "ddbbcc", and align("aabb", "aabbcc") is
// "aabbcc". width is in bytes; both lengths are multiples of it.
func align(have, want string, width int) string {
	if have == want || have == "" {
		return want
	}
	n := len(want) / width
	stay := min(len(have)/width, n) // slots of have that may stay
	odd, fresh := unlike(have[:stay*width], want, width)
	left := newBag(pick(want, fresh, width), width)
	free := odd[:0]
	for _, i := range odd {
		if !left.take(have[i*width : (i+1)*width]) {
			free = append(free, i)
		}
	}
	for i := stay; i < n; i++ {
		free = append(free, i)
	}
	if len(free) == 0 && len(have) == len(want) {
		return have
	}
	var out strings.Builder
	out.Grow(n * width)
	kept, at := have[:stay*width], 0 // kept[:at] is in out, or replaced
	for _, j := range fresh {
		if el := want[j*width : (j+1)*width]; len(free) > 0 && left.take(el) {
			to := min(free[0]*width, len(kept))
			out.WriteString(kept[at:to])
			out.WriteString(el)
			at, free = min(to+width, len(kept)), free[1:]
		}
	}
	out.WriteString(kept[at:])
	return out.String()
}

const (
	// alikeRun is how many slots are compared at once.
	alikeRun = 64
	// lookAhead is how many slots unlike searches for the next equal slots of two pools.
	lookAhead = 4
)

// unlike walks through two pools in parallel and returns the slots of each that it
// could not pair with equal slots of the other. Usually have has the layout of want
// before a change or two, so nearly all slots are paired by comparing long runs, and
// the returned lists are short. They may be longer than necessary, never shorter.
func unlike(have, want string, width int) (odd, fresh []int) {
	h, w := len(have)/width, len(want)/width
	i, j := 0, 0
	for i < h && j < w {
		n := min(alikeRun, h-i, w-j) * width
		if have[i*width:i*width+n] == want[j*width:j*width+n] {
			i, j = i+n/width, j+n/width
			continue
		}
		skipHave, skipWant := nextAlike(have[i*width:], want[j*width:], width)
		for ; skipHave > 0; skipHave-- {
			odd = append(odd, i)
			i++
		}
		for ; skipWant > 0; skipWant-- {
			fresh = append(fresh, j)
			j++
		}
		if i < h && j < w && have[i*width:(i+1)*width] == want[j*width:(j+1)*width] {
			i, j = i+1, j+1
		}
	}
	for ; i < h; i++ {
		odd = append(odd, i)
	}
	for ; j < w; j++ {
		fresh = append(fresh, j)
	}
	return odd, fresh
}

// nextAlike returns how many slots of each pool to skip so that the remainders begin with
// equal slots: none if they already do, one of both if no equal slot is near.
func nextAlike(have, want string, width int) (skipHave, skipWant int) {
	for d := range lookAhead + 1 {
		if at := d * width; at < len(have) && have[at:at+width] == want[:width] {
			return d, 0
		}
		if at := d * width; at < len(want) && want[at:at+width] == have[:width] {
			return 0, d
		}
	}
	return 1, 1
}

// pick returns the listed slots of a pool.
func pick(s string, list []int, width int) string {
	out := make([]byte, 0, len(list)*width)
	for _, i := range list {
		out = append(out, s[i*width:(i+1)*width]...)
	}
	return string(out)
}

// samePool reports whether two values hold the same elements, ignoring holes. Values of
// plain keys (width 0) must be equal.
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

// bag is a multiset of slots: a linear search for the usual few slots, a hash table for many.
type bag struct {
	few   string
	width int
	taken []bool
	many  map[string]int
}

const fewSlots = 32

// newBag returns a bag of the slots of s, holes included.
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

// take removes one el if the bag holds one, and reports whether it did.
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
