package relay

import (
	"encoding/binary"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	maxDatagram = 64 << 10
	// burstBytes and burstCount are what one call may send as datagrams of one size (UDP
	// GSO, Linux 4.18: the payload of one packet, and UDP_MAX_SEGMENTS).
	burstBytes = 65507 - 1280 // with room for headers of IPv6
	burstCount = 64
)

// burst collects datagrams of one size on their way to one receiver, so that one call
// sends them all: sending is most of what a datagram costs. It never waits for more.
type burst struct {
	buf  []byte // behind what is collected there is always room for the largest datagram
	n    int    // bytes
	size int    // of each datagram; the last one may be smaller
	send func(b []byte, size int)
}

const burstBuffer = burstBytes + maxDatagram

// room is where the next datagram is to be read to.
func (b *burst) room() []byte { return b.buf[b.n : b.n+maxDatagram] }

// add takes a datagram that was read to room, and sends what cannot wait for another.
func (b *burst) add(n int) {
	fits := b.n > 0 && n > 0 && n <= b.size && b.n+n <= burstBytes && b.n/b.size < burstCount-1
	if b.n > 0 && !fits {
		at := b.n
		b.flush()
		copy(b.buf, b.buf[at:at+n])
	}
	if b.n == 0 {
		b.size = n
	}
	b.n += n
	if n == 0 || n < b.size || b.n > burstBytes { // empty, the last of its burst, or too large for one
		b.now()
	}
}

// flush sends what was collected.
func (b *burst) flush() {
	if b.n > 0 {
		b.now()
	}
}

func (b *burst) now() {
	b.send(b.buf[:b.n], b.size)
	b.n = 0
}

// post sends datagrams through a socket, to its peer if to is nil, and gives how many were
// not sent. single is set when the kernel refuses to cut them itself: where they do not fit
// the path as they are, or a device does no checksums.
func (r *Relay) post(raw syscall.RawConn, b []byte, size int, to unix.Sockaddr, single *atomic.Bool) (lost int) {
	if len(b) > size && r.cuts && !single.Load() {
		err := write(raw, b, segments(size), to)
		if err == nil {
			return 0
		}
		if err != unix.EINVAL && err != unix.EIO && err != unix.EMSGSIZE && err != unix.EOPNOTSUPP && err != unix.ENOPROTOOPT {
			return (len(b) + size - 1) / size
		}
		single.Store(true)
	}
	for first := true; first || len(b) > 0; first = false {
		n := min(size, len(b))
		if write(raw, b[:n], nil, to) != nil {
			lost++
		}
		b = b[n:]
	}
	return lost
}

func write(raw syscall.RawConn, b, oob []byte, to unix.Sockaddr) error {
	var failed error
	err := raw.Write(func(fd uintptr) bool {
		for {
			_, failed = unix.SendmsgN(int(fd), b, oob, to, unix.MSG_NOSIGNAL)
			if failed != unix.EINTR {
				return failed != unix.EAGAIN
			}
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// cuts tells whether the kernel knows how to cut. One that does not would send the whole
// as one datagram.
func cuts() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was sent
	_, err = unix.GetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT)
	return err == nil
}

// segments is the control message that has the kernel cut a payload into datagrams.
func segments(size int) []byte {
	out := make([]byte, unix.CmsgSpace(2))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&out[0]))
	h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(out[unix.CmsgLen(0):], uint16(size))
	return out
}
