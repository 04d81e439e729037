package policy

import (
	"encoding/binary"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// fewCandidates is where sorting by comparison is as fast.
const fewCandidates = 48

// scratch is memory that successive decisions reuse. Without it a Service of 50 000
// endpoints would leave megabytes of garbage for each changed one. It holds no state
// that a decision depends on.
type scratch struct {
	list, spare     []candidate
	keys, otherKeys []uint64
	addrs           serviceAddrs
}

// release drops the references to the endpoints of the last use.
func (s *scratch) release() {
	clear(s.list)
	clear(s.spare)
	s.list, s.spare = s.list[:0], s.spare[:0]
}

// sorted returns candidates in the order of compareCandidates, and reports whether an
// address may be there twice. Long lists are sorted by the bytes of their addresses,
// and only by those that differ.
func (s *scratch) sorted(list []candidate) (out []candidate, twice bool) {
	if len(list) <= fewCandidates {
		slices.SortFunc(list, compareCandidates)
		return list, true
	}
	s.keys, s.otherKeys = resized(s.keys, len(list)), resized(s.otherKeys, len(list))
	passes, ok := keysOfIPv4(s.keys, list)
	if !ok {
		passes, ok = keysOfAny(s.keys, list)
	}
	if !ok {
		slices.SortFunc(list, compareCandidates)
		return list, true
	}
	for _, bit := range passes { // from the last byte on, each pass keeping the order of the one before
		byByte(s.keys, s.otherKeys, bit)
		s.keys, s.otherKeys = s.otherKeys, s.keys
	}
	s.spare = resized(s.spare, len(list))
	for i, key := range s.keys {
		s.spare[i] = list[uint32(key)]
	}
	return s.spare, s.sortEqualAddresses()
}

// keysOfIPv4 writes a key for each candidate, its address before its place, and returns
// the bits at which the bytes begin that differ; not ok if one is not of IPv4.
func keysOfIPv4(keys []uint64, list []candidate) (bits []uint, ok bool) {
	var varies uint32
	for i := range list {
		a := list[i].v4
		if a == 0 {
			return nil, false
		}
		varies |= a ^ list[0].v4
		keys[i] = uint64(a)<<32 | uint64(i)
	}
	for bit := uint(0); bit < 32; bit += 8 {
		if byte(varies>>bit) != 0 {
			bits = append(bits, 32+bit)
		}
	}
	return bits, true
}

// keysOfAny does the same for addresses that differ in few bytes.
func keysOfAny(keys []uint64, list []candidate) (bits []uint, ok bool) {
	varying, ok := varyingBytes(list)
	if !ok {
		return nil, false
	}
	for i := range list {
		a := list[i].ep.Addr.As16()
		key := uint64(0)
		for _, at := range varying {
			key = key<<8 | uint64(a[at])
		}
		keys[i] = key<<32 | uint64(i)
	}
	for n := range varying {
		bits = append(bits, 32+8*uint(n))
	}
	return bits, true
}

// varyingBytes returns in which bytes addresses differ; not ok if those are too many to
// be put into half a key.
func varyingBytes(list []candidate) (at []int, ok bool) {
	if len(list) == 0 {
		return nil, true
	}
	first := list[0].ep.Addr.As16()
	high, low := binary.BigEndian.Uint64(first[:8]), binary.BigEndian.Uint64(first[8:])
	var highVaries, lowVaries uint64
	for i := range list {
		a := list[i].ep.Addr.As16()
		highVaries |= high ^ binary.BigEndian.Uint64(a[:8])
		lowVaries |= low ^ binary.BigEndian.Uint64(a[8:])
	}
	var varies [16]byte
	binary.BigEndian.PutUint64(varies[:8], highVaries)
	binary.BigEndian.PutUint64(varies[8:], lowVaries)
	for i, b := range varies {
		if b != 0 {
			at = append(at, i)
		}
	}
	return at, len(at) <= 4
}

// resized returns a list of length n with unspecified content.
func resized[T any](list []T, n int) []T {
	if cap(list) < n {
		return make([]T, n)
	}
	return list[:n]
}

// byByte copies keys into out, sorted by the byte that begins at a bit.
func byByte(keys, out []uint64, bit uint) {
	var next [256]uint32
	for _, k := range keys {
		next[byte(k>>bit)]++
	}
	sum := uint32(0)
	for b, n := range next {
		next[b], sum = sum, sum+n
	}
	for _, k := range keys {
		b := byte(k >> bit)
		out[next[b]] = k
		next[b]++
	}
}

// sortEqualAddresses sorts the candidates of one address, and reports whether there are
// any.
func (s *scratch) sortEqualAddresses() (twice bool) {
	for from, to := 0, 1; from < len(s.keys); from, to = to, to+1 {
		for to < len(s.keys) && s.keys[to]>>32 == s.keys[from]>>32 {
			to++
		}
		if to-from > 1 {
			slices.SortFunc(s.spare[from:to], compareCandidates)
			twice = true
		}
	}
	return twice
}

// portFinder finds the number that a slice has for a ServicePort.
type portFinder struct {
	port   *model.ServicePort
	nth    int // its place in spec.ports, usually also its place in slices
	family model.Family
}

// in returns the number; 0 if the slice has none, or is of the other family, or is
// for DNS only.
func (p *portFinder) in(sl *model.Slice) uint16 {
	if sl.Family != p.family || sl.Headless {
		return 0
	}
	if p.nth < len(sl.Ports) && p.is(&sl.Ports[p.nth]) {
		return sl.Ports[p.nth].Port
	}
	for i := range sl.Ports {
		if p.is(&sl.Ports[i]) {
			return sl.Ports[i].Port
		}
	}
	return 0
}

func (p *portFinder) is(o *model.SlicePort) bool {
	return o.Name == p.port.Name && o.Protocol == p.port.Protocol && o.Port != 0
}
