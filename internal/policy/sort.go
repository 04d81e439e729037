package policy

import (
	"encoding/binary"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// fewCandidates is where sorting by comparison is as fast.
const fewCandidates = 48

// sorted gives candidates in the order of compareCandidates. Many are sorted by the
// bytes of their addresses, and only by those that differ: a change of one endpoint
// of 50 000 sorts them all again.
func sorted(list []candidate) []candidate {
	if len(list) <= fewCandidates {
		slices.SortFunc(list, compareCandidates)
		return list
	}
	keys, scratch := make([]addrKey, len(list)), make([]addrKey, len(list))
	var varies addrKey
	for i := range list {
		a := list[i].ep.Addr.As16()
		keys[i] = addrKey{binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:]), uint32(i)}
		varies.high |= keys[i].high ^ keys[0].high
		varies.low |= keys[i].low ^ keys[0].low
	}
	for at := range uint(16) { // from the least byte on, each pass keeping the order of the one before
		if varies.byteAt(at) != 0 {
			byByte(keys, scratch, at)
			keys, scratch = scratch, keys
		}
	}
	out := make([]candidate, len(list))
	for i := range keys {
		out[i] = list[keys[i].at]
	}
	sortEqualAddresses(out)
	return out
}

// addrKey is an address as two numbers, and whose it is.
type addrKey struct {
	high, low uint64
	at        uint32
}

// byteAt gives a byte of the address, 0 being the last.
func (k *addrKey) byteAt(n uint) byte {
	if n < 8 {
		return byte(k.low >> (8 * n))
	}
	return byte(k.high >> (8 * (n - 8)))
}

// byByte copies keys into out, sorted by one byte.
func byByte(keys, out []addrKey, at uint) {
	var next [256]uint32
	for i := range keys {
		next[keys[i].byteAt(at)]++
	}
	sum := uint32(0)
	for b, n := range next {
		next[b], sum = sum, sum+n
	}
	for i := range keys {
		b := keys[i].byteAt(at)
		out[next[b]] = keys[i]
		next[b]++
	}
}

// sortEqualAddresses puts those of one address into order.
func sortEqualAddresses(list []candidate) {
	for i := 1; i < len(list); {
		from := i - 1
		for i < len(list) && list[i].ep.Addr == list[from].ep.Addr {
			i++
		}
		if i-from > 1 {
			slices.SortFunc(list[from:i], compareCandidates)
		}
		i++
	}
}

// portFinder finds the number that a slice has for a ServicePort.
type portFinder struct {
	port   *model.ServicePort
	nth    int // its place in spec.ports, where the controller mostly puts it in slices too
	family model.Family
}

// in gives the number; 0 if the slice has none, or is of the other family, or is
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
