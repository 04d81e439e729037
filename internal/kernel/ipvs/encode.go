package ipvs

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// place appends an address, which is a union of both families, and a port.
func (m *message) place(addrType, portType uint16, at netip.AddrPort) {
	var union [16]byte
	copy(union[:], at.Addr().AsSlice())
	m.attr(addrType, union[:]...)
	m.attr(portType, byte(at.Port()>>8), byte(at.Port()))
}

func (m *message) key(k VirtualKey) {
	m.u16(svcFamily, family(k.Addr))
	m.u16(svcProtocol, uint16(k.Protocol))
	m.place(svcAddr, svcPort, netip.AddrPortFrom(k.Addr, k.Port))
}

// of appends the key of a command's virtual server.
func (m *message) of(k VirtualKey) {
	end := m.nest(attrService)
	m.key(k)
	end()
}

func (m *message) virtual(v *Virtual) {
	end := m.nest(attrService)
	m.key(v.VirtualKey)
	m.attr(svcSched, append([]byte(v.Scheduler), 0)...)
	flags := binary.NativeEndian.AppendUint32(nil, uint32(v.Flags&settable))
	m.attr(svcFlags, binary.NativeEndian.AppendUint32(flags, uint32(settable))...)
	m.u32(svcTimeout, uint32(v.Timeout/time.Second))
	m.u32(svcNetmask, oneClient(v.Addr))
	end()
}

// oneClient returns the persistence mask of a single address: a netmask for IPv4, a prefix length for IPv6.
func oneClient(at netip.Addr) uint32 {
	if at.Is4() {
		return 0xffffffff
	}
	return 128
}

func (m *message) real(r *Real) {
	end := m.nest(attrDest)
	m.place(destAddr, destPort, r.At)
	m.u16(destFamily, family(r.At.Addr()))
	m.u32(destMethod, 0)
	m.u32(destWeight, r.Weight)
	m.u32(destUpper, 0)
	m.u32(destLower, 0)
	end()
}
