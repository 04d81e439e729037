package ipvs

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// addresses returns the addresses of a link. It dumps those of all links, because only such a dump reports concurrent changes (before
// Linux 6.9); the other links of a node have few.
func (l *Link) addresses(link uint32) (list []netip.Addr, err error) {
	defer func() { l.had = len(list) }()
	return settle(make([]netip.Addr, 0, l.had), func(a *netip.Addr) netip.Addr { return *a }, func(add func(netip.Addr)) (whole bool, err error) {
		l.buf = begin(l.buf, unix.RTM_GETADDR, unix.NLM_F_DUMP)
		l.buf = append(l.buf, make([]byte, unix.SizeofIfAddrmsg)...) // of any family
		_, moved, err := exchange(l.nl, l.buf, unix.RTM_NEWADDR, func(body []byte) error {
			if len(body) < unix.SizeofIfAddrmsg {
				return errMalformed
			}
			if u32(body[4:]) != link { // ifa_index
				return nil
			}
			a, err := decodeAddress(uint16(body[0]), body[unix.SizeofIfAddrmsg:])
			if a.IsValid() && (a.Is4() || !a.IsLinkLocalUnicast()) { // the kernel adds a link-local IPv6 address by itself
				add(a)
			}
			return err
		})
		return !moved, err
	})
}

// decodeAddress returns a link's own address. On a point-to-point link the message also holds the peer's.
func decodeAddress(family uint16, attrs []byte) (at netip.Addr, err error) {
	own := false
	a := netlink.Attrs{Rest: attrs}
	for a.Next() {
		if a.Type == unix.IFA_LOCAL || a.Type == unix.IFA_ADDRESS && !own {
			at, own = addrOf(family, a.Data), own || a.Type == unix.IFA_LOCAL
		}
	}
	if a.Bad {
		return netip.Addr{}, errMalformed
	}
	return at, nil
}
