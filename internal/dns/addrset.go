package dns

import "net/netip"

// addrSet is the addresses behind one name, each once, with the number of
// reasons to have it: an endpoint may be in two slices while a controller moves
// it from one to the other. The order of the addresses means nothing.
type addrSet struct {
	list []countedAddr
	at   map[netip.Addr]int // index in list; nil while the list is short
}

type countedAddr struct {
	addr    netip.Addr
	reasons int
}

// shortList is up to how many addresses are searched one by one. Most names have
// one or two, and a map for each of them would cost more than it saves.
const shortList = 16

func (s *addrSet) len() int { return len(s.list) }

func (s *addrSet) find(a netip.Addr) int {
	if s.at != nil {
		if i, ok := s.at[a]; ok {
			return i
		}
		return -1
	}
	for i := range s.list {
		if s.list[i].addr == a {
			return i
		}
	}
	return -1
}

// add counts one more reason to have the address. It reports whether it is the first.
func (s *addrSet) add(a netip.Addr) (first bool) {
	if i := s.find(a); i >= 0 {
		s.list[i].reasons++
		return false
	}
	s.list = append(s.list, countedAddr{a, 1})
	if s.at != nil {
		s.at[a] = len(s.list) - 1
	} else if len(s.list) > shortList {
		s.at = make(map[netip.Addr]int, 2*len(s.list))
		for i := range s.list {
			s.at[s.list[i].addr] = i
		}
	}
	return true
}

// remove counts one reason less to have the address. It reports whether it was the last.
func (s *addrSet) remove(a netip.Addr) (last bool) {
	i := s.find(a)
	if i < 0 {
		return false
	}
	if s.list[i].reasons--; s.list[i].reasons > 0 {
		return false
	}
	end := len(s.list) - 1
	s.list[i] = s.list[end]
	s.list = s.list[:end]
	if s.at != nil {
		delete(s.at, a)
		if i < end {
			s.at[s.list[i].addr] = i
		}
	}
	return true
}

// families are the addresses behind one name, by family.
type families struct{ v4, v6 addrSet }

func (f *families) of(a netip.Addr) *addrSet {
	if a.Is4() {
		return &f.v4
	}
	return &f.v6
}

func (f *families) empty() bool { return len(f.v4.list)+len(f.v6.list) == 0 }

func familiesOf(list ...netip.Addr) *families {
	f := &families{}
	for _, a := range list {
		f.of(a).add(a)
	}
	return f
}
