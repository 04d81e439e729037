package intercept

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Lengths of headers without options.
const (
	ethernetLen = 14
	ipv4Len     = 20
	ipv6Len     = 40
	udpLen      = 8
)

// datagram is one UDP datagram.
type datagram struct {
	from, to netip.AddrPort
	data     []byte
}

// frame packs the datagram into an Ethernet frame.
func (d *datagram) frame(src, dst net.HardwareAddr) []byte {
	ip, proto := d.ipv4, uint16(unix.ETH_P_IP)
	if !d.from.Addr().Is4() {
		ip, proto = d.ipv6, unix.ETH_P_IPV6
	}
	b := append(append([]byte{}, dst...), src...)
	b = binary.BigEndian.AppendUint16(b, proto)
	return append(b, ip()...)
}

func (d *datagram) ipv4() []byte {
	b := make([]byte, ipv4Len, ipv4Len+udpLen+len(d.data))
	b[0], b[8], b[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(b[2:], uint16(ipv4Len+udpLen+len(d.data)))
	b[6] = 0x40 // do not fragment
	copy(b[12:], d.from.Addr().AsSlice())
	copy(b[16:], d.to.Addr().AsSlice())
	binary.BigEndian.PutUint16(b[10:], checksum(b))
	return append(b, d.udp()...)
}

func (d *datagram) ipv6() []byte {
	b := make([]byte, ipv6Len, ipv6Len+udpLen+len(d.data))
	b[0], b[6], b[7] = 0x60, unix.IPPROTO_UDP, 64
	binary.BigEndian.PutUint16(b[4:], uint16(udpLen+len(d.data)))
	copy(b[8:], d.from.Addr().AsSlice())
	copy(b[24:], d.to.Addr().AsSlice())
	return append(b, d.udp()...)
}

// udp packs header and data. The checksum is not left out: IPv6 requires it, and
// the redirection updates it.
func (d *datagram) udp() []byte {
	length := uint16(udpLen + len(d.data))
	b := binary.BigEndian.AppendUint16(nil, d.from.Port())
	b = binary.BigEndian.AppendUint16(b, d.to.Port())
	b = binary.BigEndian.AppendUint16(b, length)
	b = append(append(b, 0, 0), d.data...)
	pseudo := append(d.from.Addr().AsSlice(), d.to.Addr().AsSlice()...)
	pseudo = append(pseudo, 0, unix.IPPROTO_UDP)
	pseudo = binary.BigEndian.AppendUint16(pseudo, length)
	sum := checksum(append(pseudo, b...))
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(b[6:], sum)
	return b
}

// checksum is RFC 1071's.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// readDatagram reads an Ethernet frame; false if it holds no whole UDP datagram.
func readDatagram(b []byte) (d datagram, ok bool) {
	if len(b) < ethernetLen {
		return d, false
	}
	proto, b := binary.BigEndian.Uint16(b[12:]), b[ethernetLen:]
	var from, to []byte
	switch {
	case proto == unix.ETH_P_IP && len(b) >= ipv4Len && b[0] == 0x45 && b[9] == unix.IPPROTO_UDP:
		from, to, b = b[12:16], b[16:20], b[ipv4Len:]
	case proto == unix.ETH_P_IPV6 && len(b) >= ipv6Len && b[6] == unix.IPPROTO_UDP:
		from, to, b = b[8:24], b[24:40], b[ipv6Len:]
	default:
		return d, false
	}
	if len(b) < udpLen {
		return d, false
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	if length < udpLen || length > len(b) {
		return d, false
	}
	at := func(a []byte, port []byte) netip.AddrPort {
		addr, _ := netip.AddrFromSlice(a)
		return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(port))
	}
	return datagram{at(from, b), at(to, b[2:]), b[udpLen:length]}, true
}
