package ipvs

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Numbers of linux/ip_vs.h, which package unix lacks.
const (
	familyName = "IPVS"
	version    = 1

	cmdNewService = 1
	cmdSetService = 2
	cmdDelService = 3
	cmdGetService = 4
	cmdNewDest    = 5
	cmdSetDest    = 6
	cmdDelDest    = 7
	cmdGetDest    = 8
	cmdSetConfig  = 12

	attrService = 1
	attrDest    = 2
	attrTCP     = 4
	attrTCPFin  = 5
	attrUDP     = 6

	svcFamily   = 1
	svcProtocol = 2
	svcAddr     = 3
	svcPort     = 4
	svcMark     = 5
	svcSched    = 6
	svcFlags    = 7
	svcTimeout  = 8
	svcNetmask  = 9

	destAddr     = 1
	destPort     = 2
	destMethod   = 3
	destWeight   = 4
	destUpper    = 5
	destLower    = 6
	destActive   = 7
	destInactive = 8
	destFamily   = 11

	methodMask = 7 // IP_VS_CONN_F_FWD_MASK; 0 is IP_VS_CONN_F_MASQ
)

func family(a netip.Addr) uint16 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// addr is a union of both families.
func addr(a netip.Addr) []byte {
	out := make([]byte, 16)
	copy(out, a.AsSlice())
	return out
}

func parseAddr(fam uint16, b []byte) netip.Addr {
	n := 16
	if fam == unix.AF_INET {
		n = 4
	}
	if len(b) < n {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(b[:n])
	return a
}

func port(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }

// message is the body of one command: the generic header and what fill adds.
func message(cmd uint8, fill func(e *netlink.AttributeEncoder)) ([]byte, error) {
	e := netlink.NewAttributeEncoder()
	if fill != nil {
		fill(e)
	}
	attrs, err := e.Encode()
	return append([]byte{cmd, version, 0, 0}, attrs...), err
}

func encodeKey(e *netlink.AttributeEncoder, k VirtualKey) {
	e.Uint16(svcFamily, family(k.Addr))
	e.Uint16(svcProtocol, uint16(k.Protocol))
	e.Bytes(svcAddr, addr(k.Addr))
	e.Bytes(svcPort, port(k.Port))
}

func encodeVirtual(e *netlink.AttributeEncoder, v *Virtual) {
	encodeKey(e, v.VirtualKey)
	e.String(svcSched, v.Scheduler)
	flags := binary.NativeEndian.AppendUint32(nil, uint32(v.Flags&settable))
	e.Bytes(svcFlags, binary.NativeEndian.AppendUint32(flags, uint32(settable)))
	e.Uint32(svcTimeout, uint32(v.Timeout/time.Second))
	mask := uint32(0xffffffff) // a client is one address
	if !v.Addr.Is4() {
		mask = 128
	}
	e.Uint32(svcNetmask, mask)
}

func encodeReal(e *netlink.AttributeEncoder, r *Real) {
	e.Bytes(destAddr, addr(r.At.Addr()))
	e.Bytes(destPort, port(r.At.Port()))
	e.Uint16(destFamily, family(r.At.Addr()))
	e.Uint32(destMethod, 0)
	e.Uint32(destWeight, r.Weight)
	e.Uint32(destUpper, 0)
	e.Uint32(destLower, 0)
}

// nested finds one nested attribute of a command.
func nested(body []byte, typ uint16) (out []byte, err error) {
	if len(body) < 4 {
		return nil, fmt.Errorf("an answer of IPVS has %d bytes", len(body))
	}
	d, err := netlink.NewAttributeDecoder(body[4:])
	if err != nil {
		return nil, err
	}
	for d.Next() {
		if d.Type() == typ {
			out = d.Bytes()
		}
	}
	return out, d.Err()
}

func decodeVirtual(body []byte) (Virtual, error) {
	var v Virtual
	attrs, err := nested(body, attrService)
	if err != nil {
		return v, err
	}
	d, err := netlink.NewAttributeDecoder(attrs)
	if err != nil {
		return v, err
	}
	var fam uint16
	var at []byte
	for d.Next() {
		switch d.Type() {
		case svcFamily:
			fam = d.Uint16()
		case svcProtocol:
			v.Protocol = uint8(d.Uint16())
		case svcAddr:
			at = d.Bytes()
		case svcPort:
			v.Port = binary.BigEndian.Uint16(append(d.Bytes(), 0, 0))
		case svcMark:
			v.Mark = d.Uint32()
		case svcSched:
			v.Scheduler = d.String()
		case svcFlags:
			v.Flags = Flags(binary.NativeEndian.Uint32(append(d.Bytes(), 0, 0, 0, 0))) & settable
		case svcTimeout:
			v.Timeout = time.Duration(d.Uint32()) * time.Second
		}
	}
	v.Addr = parseAddr(fam, at)
	if v.Flags&Persistent == 0 {
		v.Timeout = 0
	}
	return v, d.Err()
}

func decodeReal(body []byte, of VirtualKey) (Real, error) {
	var r Real
	attrs, err := nested(body, attrDest)
	if err != nil {
		return r, err
	}
	d, err := netlink.NewAttributeDecoder(attrs)
	if err != nil {
		return r, err
	}
	fam, at, p := family(of.Addr), []byte(nil), uint16(0)
	for d.Next() {
		switch d.Type() {
		case destFamily:
			fam = d.Uint16()
		case destAddr:
			at = d.Bytes()
		case destPort:
			p = binary.BigEndian.Uint16(append(d.Bytes(), 0, 0))
		case destMethod:
			r.Method = d.Uint32() & methodMask
		case destWeight:
			r.Weight = d.Uint32()
		case destActive:
			r.Active = d.Uint32()
		case destInactive:
			r.Inactive = d.Uint32()
		}
	}
	r.At = netip.AddrPortFrom(parseAddr(fam, at), p)
	return r, d.Err()
}
