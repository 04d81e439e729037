package convert

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	utilnet "k8s.io/utils/net"
)

var errNotAddress = errors.New("not an IP address")

// parseAddr parses an address as the API server stores it. Addresses with leading
// zeros (010.0.0.1) are legal in objects made before Kubernetes 1.36 and mean
// decimal there, so the legacy parser decides last.
func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(strings.TrimSpace(s))
	if err != nil {
		legacy, ok := netip.AddrFromSlice(utilnet.ParseIPSloppy(strings.TrimSpace(s)))
		if !ok {
			return netip.Addr{}, fmt.Errorf("%q is %w", s, errNotAddress)
		}
		a = legacy
	}
	if a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%q has a zone, which is not allowed in an address of a cluster", s)
	}
	return a.Unmap(), nil
}

// parseVIP parses an address that clients connect to. It refuses the addresses that
// the API server refuses, and those that would capture the node's own traffic. The
// check is needed here because a folder of manifests has no API server.
func parseVIP(s string) (netip.Addr, error) {
	a, err := parseAddr(s)
	if err != nil {
		return a, err
	}
	return servable(a)
}

// servable returns the address, with an error if no unicast packet may be sent to it.
func servable(a netip.Addr) (netip.Addr, error) {
	switch {
	case a.IsUnspecified():
		return a, fmt.Errorf("%s is the unspecified address", a)
	case a.IsLoopback():
		return a, fmt.Errorf("%s is a loopback address", a)
	case a.IsMulticast():
		return a, fmt.Errorf("%s is a multicast address", a)
	case a.Is4() && a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return a, fmt.Errorf("%s is the broadcast address", a)
	}
	return a, nil
}

// parseEndpoint parses an address that connections are sent to. It accepts what the
// API server allows in an EndpointSlice (ValidateEndpointIP), and loopback
// addresses if the endpoints are processes of this machine.
func (c *Converter) parseEndpoint(s string) (netip.Addr, error) {
	a, err := parseAddr(s)
	if err != nil || c.LocalEndpoints && a.IsLoopback() {
		return a, err
	}
	a, err = servable(a)
	if err == nil && a.IsLinkLocalUnicast() {
		return a, fmt.Errorf("%s is a link-local address", a)
	}
	return a, err
}

// parsePrefix parses a CIDR and masks it. Spaces around it are allowed, as
// kube-proxy allows them.
func parsePrefix(s string) (netip.Prefix, error) {
	s = strings.TrimSpace(s)
	if p, err := netip.ParsePrefix(s); err == nil {
		return unmapPrefix(p)
	}
	_, legacy, err := utilnet.ParseCIDRSloppy(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR", s)
	}
	a, ok := netip.AddrFromSlice(legacy.IP)
	if !ok {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR", s)
	}
	bits, _ := legacy.Mask.Size()
	return unmapPrefix(netip.PrefixFrom(a, bits))
}

// unmapPrefix converts ::ffff:10.0.0.0/104 to 10.0.0.0/8, since packets of such
// sources are IPv4 packets.
func unmapPrefix(p netip.Prefix) (netip.Prefix, error) {
	a, bits := p.Addr(), p.Bits()
	if a.Is4In6() {
		if bits < 96 {
			return netip.Prefix{}, fmt.Errorf("%s covers more than the IPv4-mapped addresses", p)
		}
		a, bits = a.Unmap(), bits-96
	}
	return netip.PrefixFrom(a, bits).Masked(), nil
}

// checkPort returns an error if a number is not a valid port.
func checkPort(n int32) error {
	switch {
	case n == 0:
		return errors.New("0 is not a port")
	case n < 0 || n > 65535:
		return fmt.Errorf("%d is not a port: it must be in 1..65535", n)
	}
	return nil
}
