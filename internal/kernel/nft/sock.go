package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// recvBytes is the receive buffer: the kernel sizes dump messages by the largest read it has seen, up to 32 KiB, and a
// dump's cost falls with the number of messages because it restarts its walk in each.
const recvBytes = 64 << 10

// answerBytes is the receive buffer of the socket for everything but Watch.
const answerBytes = 1 << 20

// sock is a netlink socket used through raw system calls: mdlayher/netlink copies every message of a batch and allocates for
// every one received, which a batch of 500 000 elements cannot afford.
type sock struct {
	nl     *netlink.Conn
	raw    syscall.RawConn
	buf    []byte
	seq    uint32
	sndbuf int
}

func dial(netns, rcvbuf int) (*sock, error) {
	nl, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	raw, err := nl.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, nl.Close())
	}
	s := &sock{nl: nl, raw: raw, buf: make([]byte, recvBytes)}
	if err := s.setup(rcvbuf); err != nil {
		return nil, errors.Join(fmt.Errorf("set up netlink socket: %w", err), nl.Close())
	}
	return s, nil
}

// setup asks for extended errors without an echo of the message: a refused element list is 64 KB.
func (s *sock) setup(rcvbuf int) error {
	return s.control(func(fd int) error {
		for _, o := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK} {
			if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, o, 1); err != nil {
				return err
			}
		}
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, rcvbuf)
	})
}

func (s *sock) control(f func(fd int) error) error {
	var err error
	if cerr := s.raw.Control(func(fd uintptr) { err = f(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

// send sends bufs as one datagram, that is one transaction. The kernel works through it before it returns.
func (s *sock) send(bufs [][]byte) error {
	n := 0
	for _, b := range bufs {
		n += len(b)
	}
	return s.control(func(fd int) error {
		if want := n + 64<<10; want > s.sndbuf {
			// The default send buffer answers EMSGSIZE from 212 992 bytes on.
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, want); err != nil {
				return fmt.Errorf("grow send buffer to %d bytes: %w", want, err)
			}
			s.sndbuf = want
		}
		for {
			_, err := unix.SendmsgBuffers(fd, bufs, nil, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}, 0)
			if !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	})
}

// recv reads one datagram that is already there: netlink answers within send, and a dump goes on within recv.
func (s *sock) recv() ([]byte, error) {
	var n int
	err := s.control(func(fd int) error {
		for {
			var err error
			n, _, err = unix.Recvfrom(fd, s.buf, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
			if !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	})
	if n > len(s.buf) { // MSG_TRUNC gives the true length
		return nil, fmt.Errorf("netlink datagram of %d bytes does not fit", n)
	}
	return s.buf[:max(n, 0)], err
}

// nlmsg is one received message; body begins after the netlink header.
type nlmsg struct {
	typ, flags uint16
	seq, port  uint32 // port: of the socket that asked
	body       []byte
}

// eachMsg walks the messages of a datagram until f says stop.
func eachMsg(b []byte, f func(nlmsg) (more bool)) {
	for len(b) >= nlmsgHdrLen {
		n := int(binary.NativeEndian.Uint32(b))
		if n < nlmsgHdrLen || n > len(b) {
			return
		}
		m := nlmsg{
			typ: binary.NativeEndian.Uint16(b[4:]), flags: binary.NativeEndian.Uint16(b[6:]),
			seq: binary.NativeEndian.Uint32(b[8:]), port: binary.NativeEndian.Uint32(b[12:]), body: b[nlmsgHdrLen:n],
		}
		if !f(m) {
			return
		}
		b = b[min(align4(n), len(b)):]
	}
}

// family and attrs split the body of an nftables message.
func (m nlmsg) family() Family { return Family(m.body[0]) }
func (m nlmsg) attrs() []byte  { return m.body[nfgenLen:] }

// isNft says whether m is an nftables message of a type.
func (m nlmsg) isNft(typ uint16) bool {
	return m.typ == nfnlSubsysNft<<8|typ && len(m.body) >= nfgenLen
}

// errno is the error of an NLMSG_ERROR or NLMSG_DONE message; 0 is an acknowledgement.
func (m nlmsg) errno() unix.Errno {
	if len(m.body) < 4 {
		return 0
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(m.body)))
}

// ack is what an NLMSG_ERROR message says in its extended part.
type ack struct {
	msg    string
	offset int // of the attribute at fault from the start of the message; 0: not given
}

func (m nlmsg) ack() ack {
	const inner = 4 + nlmsgHdrLen
	if m.flags&nlmErrorTLVs == 0 || len(m.body) < inner {
		return ack{}
	}
	rest := m.body[inner:]
	if m.flags&nlmErrorCapped == 0 {
		n := align4(int(binary.NativeEndian.Uint32(m.body[4:])) - nlmsgHdrLen)
		rest = rest[min(max(n, 0), len(rest)):]
	}
	var a ack
	eachAttr(rest, func(typ uint16, d []byte) {
		switch {
		case typ == nlmsgerrMsg:
			a.msg = string(cstr(d))
		case typ == nlmsgerrOffset && len(d) >= 4:
			a.offset = int(binary.NativeEndian.Uint32(d))
		}
	})
	return a
}
