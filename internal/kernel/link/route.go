package link

import (
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Device returns the name of the link through which packets to an address leave the network
// namespace of the calling thread; "" if there is no route.
func Device(a netip.Addr) string {
	routes, err := netlink.RouteGet(a.AsSlice())
	if err != nil || len(routes) == 0 {
		return ""
	}
	l, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return ""
	}
	return l.Attrs().Name
}
