package nftables

import "slices"

// bound is an element of an interval set: where a range begins, or the first
// address behind one.
type bound struct {
	addr string
	end  bool
}

// joinBounds returns the packed ranges that starts and ends form. A start without an
// end extends to the last address. An end whose start another program deleted becomes
// a range that ends before it begins (loneEnd). An end at the first address is
// ignored: it cuts no range short, and nft writes one itself.
func joinBounds(list []bound, width int) string {
	slices.SortFunc(list, func(a, b bound) int {
		switch {
		case a.addr < b.addr || a.addr == b.addr && a.end && !b.end:
			return -1
		case a == b:
			return 0
		}
		return 1
	})
	var out []byte
	for i, b := range list {
		if b.end {
			if (i == 0 || list[i-1].end) && !hole(b.addr) {
				out = append(append(out, b.addr...), previous(b.addr)...)
			}
			continue
		}
		out = append(out, b.addr...)
		if i+1 < len(list) && list[i+1].end {
			out = append(out, previous(list[i+1].addr)...)
		} else {
			out = append(out, slices.Repeat([]byte{0xff}, width)...)
		}
	}
	return string(out)
}

// loneEnd reports whether a range is what joinBounds returns for an end without a
// start. Such a range is never desired, so it is deleted: it would cut short a range
// that contains it.
func loneEnd(first, last string) bool { return first > last }

// previous returns the address before a.
func previous(a string) []byte {
	b := []byte(a)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]--
		if b[i] != 0xff {
			break
		}
	}
	return b
}
