package ipvs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// errMalformed: the kernel's answer is truncated.
var errMalformed = errors.New("malformed IPVS reply")

// inner returns the nested attribute that holds the object of a command.
func inner(attrs []byte, typ uint16) (out []byte, err error) {
	a := netlink.Attrs{Rest: attrs}
	for a.Next() {
		if a.Type == typ {
			out = a.Data
		}
	}
	if a.Bad || out == nil {
		return nil, errMalformed
	}
	return out, nil
}

func u16(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.NativeEndian.Uint16(b)
}

func u32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

// portOf decodes a port, which is in network byte order.
func portOf(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

// addrOf decodes the address of a family from the union of both.
func addrOf(fam uint16, b []byte) netip.Addr {
	switch {
	case fam == unix.AF_INET && len(b) >= 4:
		return netip.AddrFrom4([4]byte(b))
	case fam == unix.AF_INET6 && len(b) >= 16:
		return netip.AddrFrom16([16]byte(b))
	}
	return netip.Addr{}
}

// names decodes the names of schedulers. Most virtual servers have the same scheduler, so they share one string.
type names struct{ last string }

func (n *names) of(b []byte) string {
	if end := bytes.IndexByte(b, 0); end >= 0 {
		b = b[:end]
	}
	if n.last != string(b) {
		n.last = string(b)
	}
	return n.last
}

// finish normalizes a virtual server: without persistence, timeout and mask are meaningless and are cleared.
func (v *Virtual) finish(mask uint32) {
	v.Flags &= settable
	if v.Flags&Persistent == 0 {
		v.Timeout = 0
		return
	}
	v.Wide = mask != oneClient(v.Addr)
}

// decodeVirtual decodes the attributes of a virtual server. One that is identified by a mark has no address.
func decodeVirtual(attrs []byte, names *names) (v Virtual, err error) {
	in, err := inner(attrs, attrService)
	if err != nil {
		return v, err
	}
	var fam uint16
	var at []byte
	var mask uint32
	marked := false
	a := netlink.Attrs{Rest: in}
	for a.Next() {
		switch a.Type {
		case svcFamily:
			fam = u16(a.Data)
		case svcProtocol:
			v.Protocol = uint8(u16(a.Data))
		case svcAddr:
			at = a.Data
		case svcPort:
			v.Port = portOf(a.Data)
		case svcMark:
			marked = true
		case svcSched:
			v.Scheduler = names.of(a.Data)
		case svcFlags:
			v.Flags = Flags(u32(a.Data))
		case svcTimeout:
			v.Timeout = time.Duration(u32(a.Data)) * time.Second
		case svcNetmask:
			mask = u32(a.Data)
		}
	}
	if v.Addr = addrOf(fam, at); a.Bad || !marked && !v.Addr.IsValid() {
		return Virtual{}, errMalformed
	}
	v.finish(mask)
	return v, nil
}

// decodeReal decodes the attributes of a real server. fam is the family of its virtual server, used
// where the kernel does not report that of the real server (before Linux 3.18).
func decodeReal(attrs []byte, fam uint16) (r Real, err error) {
	in, err := inner(attrs, attrDest)
	if err != nil {
		return r, err
	}
	var at []byte
	var port uint16
	a := netlink.Attrs{Rest: in}
	for a.Next() {
		switch a.Type {
		case destFamily:
			fam = u16(a.Data)
		case destAddr:
			at = a.Data
		case destPort:
			port = portOf(a.Data)
		case destMethod:
			r.Method = u32(a.Data) & methodMask
		case destWeight:
			r.Weight = u32(a.Data)
		case destUpper:
			r.Limited = u32(a.Data) > 0
		case destActive:
			r.Active = u32(a.Data)
		case destInactive:
			r.Inactive = u32(a.Data)
		}
	}
	r.At = netip.AddrPortFrom(addrOf(fam, at), port)
	if a.Bad || !r.At.IsValid() {
		return Real{}, errMalformed
	}
	return r, nil
}
