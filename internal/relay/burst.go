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

// room returns the buffer into which the next datagram is to be read.
func (b *burst) room() []byte { return b.buf[b.n : b.n+maxDatagram] }

// add takes a datagram of n bytes that was read to room, and sends what cannot wait for another.
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

// road is a socket and the receiver to which it sends; nil for its peer. single is set when the
// kernel refuses to cut datagrams on it: they do not fit the path, or a device does no checksums.
type road struct {
	raw    syscall.RawConn
	to     unix.Sockaddr
	single *atomic.Bool
}

// post sends datagrams. It returns how many were not sent.
func (r *Relay) post(way road, b []byte, size int) (lost int) {
	if len(b) > size && r.cuts && !way.single.Load() {
		err := way.write(b, segments(size))
		if err == nil {
			return 0
		}
		if err != unix.EINVAL && err != unix.EIO && err != unix.EMSGSIZE && err != unix.EOPNOTSUPP && err != unix.ENOPROTOOPT {
			return (len(b) + size - 1) / size
		}
		way.single.Store(true)
	}
	for first := true; first || len(b) > 0; first = false {
		n := min(size, len(b))
		if way.write(b[:n], nil) != nil {
			lost++
		}
		b = b[n:]
	}
	return lost
}

func (way road) write(b, oob []byte) error {
	var failed error
	err := way.raw.Write(func(fd uintptr) bool {
		for {
			_, failed = unix.SendmsgN(int(fd), b, oob, way.to, unix.MSG_NOSIGNAL)
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

// cuts reports whether the kernel knows how to cut. One that does not would send the whole
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

// segments returns the control message that makes the kernel cut a payload into datagrams.
func segments(size int) []byte {
	out := make([]byte, unix.CmsgSpace(2))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&out[0]))
	h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(out[unix.CmsgLen(0):], uint16(size))
	return out
}
