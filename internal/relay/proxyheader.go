package relay

import (
	"encoding/binary"
	"net/netip"
)

// proxyHeader returns the header that reports the client's address to an endpoint, before the client's first byte
// (the PROXY protocol, version 2: haproxy.org, proxy-protocol.txt, section 2.2). The
// addresses are of one family: those of one TCP connection.
func proxyHeader(client, at netip.AddrPort) []byte {
	const (
		signature = "\r\n\r\n\x00\r\nQUIT\n"
		proxied   = 0x21 // version 2, command PROXY
		tcp4      = 0x11
		tcp6      = 0x21
	)
	src, dst, kind := client.Addr().Unmap().AsSlice(), at.Addr().Unmap().AsSlice(), byte(tcp4)
	if len(src) == 16 {
		kind = tcp6
	}
	out := append([]byte(signature), proxied, kind)
	out = binary.BigEndian.AppendUint16(out, uint16(len(src)+len(dst)+4))
	out = append(append(out, src...), dst...)
	out = binary.BigEndian.AppendUint16(out, client.Port())
	return binary.BigEndian.AppendUint16(out, at.Port())
}
