package model

import (
	"fmt"
	"net/netip"
)

// Family is an IP family. Values are the IP version numbers.
type Family uint8

// The two families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// String returns the spelling of the metric label ip_family and of
// EndpointSlice.addressType.
func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	}
	return fmt.Sprintf("family(%d)", uint8(f))
}

// FamilyOf returns the family of a valid, unmapped address. An address that is neither counts as IPv6.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Protocol is an IANA protocol number.
type Protocol uint8

// The protocols a Service port may have.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String returns the Kubernetes spelling, "TCP".
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return fmt.Sprintf("protocol(%d)", uint8(p))
}

// ParseProtocol parses the Kubernetes spelling; empty means TCP (the API's
// default). It returns false for every other string.
func ParseProtocol(s string) (Protocol, bool) {
	switch s {
	case "", "TCP":
		return TCP, true
	case "UDP":
		return UDP, true
	case "SCTP":
		return SCTP, true
	}
	return 0, false
}
