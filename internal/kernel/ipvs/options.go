package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// options is the older interface of IPVS, options of an IPv4 socket. It supports IPv4 only, and returns all virtual servers, or all
// real servers of one, at once and as one snapshot. Generic netlink takes about ten times as long for the same, because it
// builds a message for each object, with all statistics twice.
//
// Numbers and sizes are those of linux/ip_vs.h on 64-bit architectures; on others the statistics have other offsets.
type options struct {
	fd   int
	ask  func(option uintptr, buf []byte) error
	buf  []byte // for real servers; between calls every entry in it has address 0
	name names
}

const (
	optGetInfo     = 64 + 1024 + 64 + 1
	optGetServices = 64 + 1024 + 64 + 2
	optGetDests    = 64 + 1024 + 64 + 4

	infoBytes    = 12 // struct ip_vs_getinfo
	infoServices = 8

	servicesBytes = 8 // struct ip_vs_get_services, before its entries
	serviceBytes  = 104
	serviceAddr   = 4 // after the protocol
	servicePort   = 8
	serviceMark   = 12
	serviceSched  = 16
	serviceFlags  = 32
	serviceTime   = 36
	serviceMask   = 40
	serviceDests  = 44 // number of its real servers

	destsBytes   = 24 // struct ip_vs_get_dests, before its entries; it begins like that of a service
	destsRoom    = 16
	destBytes    = 96
	destsPort    = 4 // after the address
	destsFlags   = 8
	destsWeight  = 12
	destsUpper   = 16
	destsActive  = 24
	destsResting = 28

	spare = 64      // spare entries of a buffer beyond the expected number
	most  = 1 << 20 // maximum number of entries in one request
)

var errTooMany = errors.New("IPVS has more virtual servers than one request can return")

// openOptions opens a socket in a network namespace; it returns nil if the interface is not available.
func openOptions(netns int) *options {
	if strconv.IntSize != 64 {
		return nil
	}
	o := &options{fd: -1}
	err := netlink.Inside(netns, func() (err error) {
		o.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil
	}
	o.ask = o.getOption
	return o
}

func (o *options) close() error {
	if o == nil {
		return nil
	}
	return unix.Close(o.fd)
}

// getOption calls getsockopt: buf holds the request, and the kernel overwrites it with the answer.
func (o *options) getOption(option uintptr, buf []byte) error {
	for range maxInterrupts {
		length := uint32(len(buf))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(o.fd), unix.SOL_IP, option,
			uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&length)), 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
	return unix.EINTR
}

// maxInterrupts bounds the retries of a request that signals interrupt.
const maxInterrupts = 100

// virtuals calls each with each virtual server of IPv4 that has an address, and with the number of its real servers of any family.
// each must not keep the pointer. After an error, each has not been called.
func (o *options) virtuals(each func(v *Virtual, reals int)) error {
	var info [infoBytes]byte
	if err := o.ask(optGetInfo, info[:]); err != nil {
		return fmt.Errorf("read the number of IPVS virtual servers: %w", err)
	}
	for room := int(binary.NativeEndian.Uint32(info[infoServices:])) + spare; room <= most; room *= 2 {
		buf := make([]byte, servicesBytes+room*serviceBytes)
		binary.NativeEndian.PutUint32(buf, uint32(room))
		if err := o.ask(optGetServices, buf); err != nil {
			return fmt.Errorf("list virtual servers: %w", err)
		}
		// The kernel does not report the number of entries, but no entry has protocol 0. If the buffer is full, there may be more.
		if buf = buf[servicesBytes:]; binary.NativeEndian.Uint16(buf[(room-1)*serviceBytes:]) != 0 {
			continue
		}
		var v Virtual
		for ; binary.NativeEndian.Uint16(buf) != 0; buf = buf[serviceBytes:] {
			if binary.NativeEndian.Uint32(buf[serviceMark:]) == 0 {
				reals := 0
				v, reals = o.virtual((*[serviceBytes]byte)(buf))
				each(&v, reals)
			}
		}
		return nil
	}
	return errTooMany
}

func (o *options) virtual(b *[serviceBytes]byte) (v Virtual, reals int) {
	v = Virtual{
		VirtualKey: VirtualKey{netip.AddrFrom4([4]byte(b[serviceAddr:])), uint8(binary.NativeEndian.Uint16(b[:])), binary.BigEndian.Uint16(b[servicePort:])},
		Scheduler:  o.name.of(b[serviceSched:serviceFlags]),
		Flags:      Flags(binary.NativeEndian.Uint32(b[serviceFlags:])),
		Timeout:    time.Duration(binary.NativeEndian.Uint32(b[serviceTime:])) * time.Second,
	}
	v.finish(binary.NativeEndian.Uint32(b[serviceMask:]))
	return v, int(binary.NativeEndian.Uint32(b[serviceDests:]))
}

// reals appends the real servers of a virtual one, whether as many as expected or not. Those of IPv6 (tunnels) are left out. If the
// virtual server does not exist, reals returns ESRCH.
func (o *options) reals(out []Real, of VirtualKey, expected int) ([]Real, error) {
	for expected < most {
		if len(o.buf) < destsBytes+(expected+1)*destBytes {
			o.buf = make([]byte, destsBytes+(expected+spare)*destBytes)
		}
		room := (len(o.buf) - destsBytes) / destBytes
		binary.NativeEndian.PutUint16(o.buf, uint16(of.Protocol))
		a := of.Addr.As4()
		copy(o.buf[serviceAddr:], a[:])
		binary.BigEndian.PutUint16(o.buf[servicePort:], of.Port)
		binary.NativeEndian.PutUint32(o.buf[destsRoom:], uint32(room))
		if err := o.ask(optGetDests, o.buf[:destsBytes+room*destBytes]); err != nil {
			o.buf = nil // its content is unknown now
			return out, err
		}
		// The kernel does not report the number of entries, but no entry has address 0. If the buffer is full, there may be more.
		given := 0
		for b := o.buf[destsBytes:]; given < room && binary.NativeEndian.Uint32(b) != 0; b = b[destBytes:] {
			out = append(out, Real{})
			out[len(out)-1].set((*[destBytes]byte)(b))
			clear(b[:4])
			given++
		}
		if given < room {
			return out, nil
		}
		out, expected = out[:len(out)-given], 2*room
	}
	return out, errTooMany
}

// set decodes an entry.
func (r *Real) set(b *[destBytes]byte) {
	r.At = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[:])), binary.BigEndian.Uint16(b[destsPort:]))
	r.Weight = binary.NativeEndian.Uint32(b[destsWeight:])
	r.Active = binary.NativeEndian.Uint32(b[destsActive:])
	r.Inactive = binary.NativeEndian.Uint32(b[destsResting:])
	r.Method = binary.NativeEndian.Uint32(b[destsFlags:]) & methodMask
	r.Limited = binary.NativeEndian.Uint32(b[destsUpper:]) > 0
}
