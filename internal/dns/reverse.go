package dns

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/fairlead/fairlead/internal/model"
)

// pointer is one PTR target.
type pointer struct {
	key  model.ServiceKey
	host string // "" for a cluster IP
}

// maxPointers is how many names one address is answered with at most.
const maxPointers = 64

func (s *Store) point(a netip.Addr, p pointer) { s.reverse[a] = append(s.reverse[a], p) }

func (s *Store) unpoint(a netip.Addr, p pointer) {
	list := s.reverse[a]
	if i := slices.Index(list, p); i >= 0 {
		list[i] = list[len(list)-1]
		list = list[:len(list)-1]
	}
	if len(list) == 0 {
		delete(s.reverse, a)
		return
	}
	s.reverse[a] = list
}

// names returns the names of an address. An account that may write EndpointSlices can
// list any address, so these names are returned only where they hide no other owner's:
// a Service's cluster IP has that Service's name and no other, and an address that is
// no pod's and no private network's is left to its owner.
func (s *Store) names(a netip.Addr) (list []pointer) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := s.reverse[a]
	for _, p := range all {
		if p.host == "" {
			list = append(list, p)
		}
	}
	if len(list) > 0 || !s.mayName(a) {
		return list
	}
	return slices.Clone(all[:min(len(all), maxPointers)])
}

// mayName reports whether endpoints may have a name for the address.
func (s *Store) mayName(a netip.Addr) bool {
	switch {
	case within(s.serviceRanges, a), a.IsLoopback(), a.IsLinkLocalUnicast():
		return false
	case within(s.locals.podRanges(), a):
		return true
	}
	return a.IsPrivate() || sharedSpace().Contains(a)
}

// sharedSpace returns RFC 6598's range, which several clouds assign to pods.
func sharedSpace() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64}), 10) }

func within(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// pointers answers a PTR query from the store. It returns false for a reverse name that
// is not known: it may belong to another zone, so NXDOMAIN would be wrong.
func (z *zone) pointers(name string) (answer, bool) {
	ip, ok := reverseAddr(name)
	if !ok {
		return answer{}, false
	}
	list := z.store.names(ip)
	var out answer
	for _, p := range list {
		target := p.key.Name + "." + p.key.Namespace + ".svc" + z.suffix
		if p.host != "" {
			target = p.host + "." + target
		}
		out.rrs = append(out.rrs, &dns.PTR{Hdr: header(name, dns.TypePTR), Ptr: target})
	}
	return out, len(list) > 0
}

// reverseAddr reads d.c.b.a.in-addr.arpa. and its IPv6 counterpart.
func reverseAddr(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		labels := strings.Split(rest, ".")
		if len(labels) != 4 {
			return netip.Addr{}, false
		}
		ip, err := netip.ParseAddr(labels[3] + "." + labels[2] + "." + labels[1] + "." + labels[0])
		return ip, err == nil && ip.Is4() // "::%." would be an address with a zone
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa.")
	if !ok || len(rest) != 63 {
		return netip.Addr{}, false
	}
	var text strings.Builder
	for i := 62; i >= 0; i -= 2 {
		if !strings.ContainsRune("0123456789abcdefABCDEF", rune(rest[i])) {
			return netip.Addr{}, false // "%" would begin a zone, ":" cut a group short
		}
		text.WriteByte(rest[i])
		if i%8 == 0 && i > 0 {
			text.WriteByte(':')
		}
		if i > 0 && rest[i-1] != '.' {
			return netip.Addr{}, false
		}
	}
	ip, err := netip.ParseAddr(text.String())
	return ip, err == nil
}
