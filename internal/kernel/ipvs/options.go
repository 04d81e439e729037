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

// options is the first interface of IPVS, options of an IPv4 socket: it knows IPv4 alone, and gives all virtual servers, or all
// real servers of one, at once and as of one moment. Generic netlink takes some ten times as long for the same, because it
// puts a message together for each, with all statistics twice.
//
// Numbers and sizes are those of linux/ip_vs.h where a word has 64 bits; in others the statistics are elsewhere.
type options struct {
	fd   int
	ask  func(option uintptr, buf []byte) error
	buf  []byte // for real servers; no entry in it has an address
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
	serviceAddr   = 4 // behind the protocol
	servicePort   = 8
	serviceMark   = 12
	serviceSched  = 16
	serviceFlags  = 32
	serviceTime   = 36
	serviceMask   = 40
	serviceDests  = 44 // how many real servers it has

	destsBytes   = 24 // struct ip_vs_get_dests, before its entries; it begins as that of a service does
	destsRoom    = 16
	destBytes    = 96
	destsPort    = 4 // behind the address
	destsFlags   = 8
	destsWeight  = 12
	destsUpper   = 16
	destsActive  = 24
	destsResting = 28

	spare = 64      // entries to have room for beyond those that are expected
	most  = 1 << 20 // entries to ask for at once
)

var errTooMany = errors.New("IPVS has more than may be asked for at once")

// openOptions opens a socket in a network namespace; nil: there is no such interface here.
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

// getOption has the kernel write into buf, which also holds the question.
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

// maxInterrupts bounds how often a question is asked again because a signal came.
const maxInterrupts = 100

// virtuals hands each virtual server of IPv4 that has an address to each, which may not keep it, with the number of its real servers of any family. With an error it has handed
// over none.
func (o *options) virtuals(each func(v *Virtual, reals int)) error {
	var info [infoBytes]byte
	if err := o.ask(optGetInfo, info[:]); err != nil {
		return fmt.Errorf("ask IPVS how many virtual servers there are: %w", err)
	}
	for room := int(binary.NativeEndian.Uint32(info[infoServices:])) + spare; room <= most; room *= 2 {
		buf := make([]byte, servicesBytes+room*serviceBytes)
		binary.NativeEndian.PutUint32(buf, uint32(room))
		if err := o.ask(optGetServices, buf); err != nil {
			return fmt.Errorf("list virtual servers: %w", err)
		}
		// The kernel does not say how many it gave, but it has none without a protocol. If the last one is there, there may be more.
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

// reals appends the real servers of a virtual one, as many as are expected or not. Those of IPv6 (tunnels) are left out. If there
// is no such virtual server, that is ESRCH.
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
			o.buf = nil // nobody knows what was written into it
			return out, err
		}
		// The kernel does not say how many it gave, but none is at no address. If all are there, there may be more.
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

// set makes it the one of an entry.
func (r *Real) set(b *[destBytes]byte) {
	r.At = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[:])), binary.BigEndian.Uint16(b[destsPort:]))
	r.Weight = binary.NativeEndian.Uint32(b[destsWeight:])
	r.Active = binary.NativeEndian.Uint32(b[destsActive:])
	r.Inactive = binary.NativeEndian.Uint32(b[destsResting:])
	r.Method = binary.NativeEndian.Uint32(b[destsFlags:]) & methodMask
	r.Limited = binary.NativeEndian.Uint32(b[destsUpper:]) > 0
}
