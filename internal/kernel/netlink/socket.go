package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Wire carries datagrams to the kernel and back: a Socket or, in tests, a faulty wrapper of one.
type Wire interface {
	// Send sends bufs as one datagram. The kernel handles it before Send returns.
	Send(bufs [][]byte) error
	// Receive reads one datagram into b and returns its true length, which is more than len(b) if it did not fit. If the queue
	// is empty, it waits or returns EAGAIN.
	Receive(b []byte, wait bool) (int, error)
}

// Protocol is the netlink protocol of a Socket.
type Protocol uint8

// The protocols.
const (
	Netfilter Protocol = iota
	Generic            // generic netlink: families with names
	Route              // links, addresses, routes
)

func (p Protocol) number() int {
	return [...]int{Netfilter: unix.NETLINK_NETFILTER, Generic: unix.NETLINK_GENERIC, Route: unix.NETLINK_ROUTE}[p]
}

// Options configure a Socket.
type Options struct {
	Protocol       Protocol
	ReceiveBuffer  int  // bytes, which the kernel doubles; 0: the kernel's own choice
	ExtendedErrors bool // errors name the attribute at fault; they never repeat the rejected message, which may have 64 KB
}

// Socket is a netlink socket.
type Socket struct {
	nl     *netlink.Conn
	raw    syscall.RawConn
	sndbuf int
}

var _ Wire = (*Socket)(nil)

// dial opens a Socket in the network namespace of a descriptor; 0: the calling thread's.
func dial(netns int, o Options) (*Socket, error) {
	nl, err := netlink.Dial(o.Protocol.number(), &netlink.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	raw, err := nl.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, nl.Close())
	}
	s := &Socket{nl: nl, raw: raw}
	if err := s.setup(o); err != nil {
		return nil, errors.Join(fmt.Errorf("set up netlink socket: %w", err), nl.Close())
	}
	return s, nil
}

func (s *Socket) setup(o Options) error {
	if o.ReceiveBuffer > 0 {
		if err := s.SetReceiveBuffer(o.ReceiveBuffer); err != nil {
			return err
		}
	}
	if !o.ExtendedErrors {
		return nil
	}
	return s.control(func(fd int) error {
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1),
			unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1))
	})
}

func (s *Socket) control(f func(fd int) error) error {
	var err error
	if cerr := s.raw.Control(func(fd uintptr) { err = f(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

// SetReceiveBuffer sets the receive buffer to this number of bytes, which the kernel doubles. In a
// user namespace, where net.core.rmem_max is the limit, the buffer is at most that large.
func (s *Socket) SetReceiveBuffer(bytes int) error {
	return s.control(func(fd int) error {
		err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes)
		if errors.Is(err, unix.EPERM) {
			return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
		}
		return err
	})
}

// Close closes the socket; a pending Receive returns an error.
func (s *Socket) Close() error { return s.nl.Close() }

// Port returns the socket's port id.
func (s *Socket) Port() uint32 { return s.nl.PID() }

// Join makes the socket a member of a multicast group.
func (s *Socket) Join(group uint32) error { return s.nl.JoinGroup(group) }

// Leave ends the membership of a multicast group.
func (s *Socket) Leave(group uint32) error { return s.nl.LeaveGroup(group) }

// SetReadDeadline bounds the wait in Receive; the zero time means no bound.
func (s *Socket) SetReadDeadline(t time.Time) error { return s.nl.SetReadDeadline(t) }

// Send implements Wire.
func (s *Socket) Send(bufs [][]byte) error {
	n := 0
	for _, b := range bufs {
		n += len(b)
	}
	return s.control(func(fd int) error {
		if want := n + 64<<10; want > s.sndbuf && n > 64<<10 {
			// The default send buffer answers EMSGSIZE from 212 992 bytes on.
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, want); err != nil {
				return fmt.Errorf("grow send buffer to %d bytes: %w", want, err)
			}
			s.sndbuf = want
		}
		_, err := unix.SendmsgBuffers(fd, bufs, nil, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}, 0)
		return err
	})
}

// Receive implements Wire.
func (s *Socket) Receive(b []byte, wait bool) (n int, err error) {
	receive := func(fd uintptr) { n, _, err = unix.Recvfrom(int(fd), b, unix.MSG_DONTWAIT|unix.MSG_TRUNC) }
	var rerr error
	if wait {
		rerr = s.raw.Read(func(fd uintptr) bool { receive(fd); return !errors.Is(err, unix.EAGAIN) })
	} else {
		rerr = s.raw.Control(receive)
	}
	if rerr != nil {
		return 0, rerr
	}
	return max(n, 0), err
}

// DropFrom drops each datagram whose first message carries this port, which in notifications is the port of the socket
// that caused them. It replaces an earlier filter.
func (s *Socket) DropFrom(port uint32) error {
	// A = nlmsg_pid, at offset 12; drop if it equals port. The filter loads as big endian a value that is in native order.
	k := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, port))
	prog := [...]unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 12},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: k},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
	return s.Filter(prog[:])
}

// Filter drops each datagram for which a program of classic BPF returns 0. It replaces an earlier
// filter.
func (s *Socket) Filter(prog []unix.SockFilter) error {
	return s.control(func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})
	})
}
