package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// recvBytes is the receive buffer: the kernel sizes the messages of a dump by
	// the largest read it has seen, up to 32 KiB.
	recvBytes = 64 << 10
	// deleteChunk is how many deletions go in one datagram.
	deleteChunk = 64
)

// Config configures a Conn.
type Config struct {
	NetNS int // file descriptor of a network namespace; 0 = the calling thread's
}

// Conn is the Table of a network namespace. It belongs to one goroutine.
type Conn struct {
	nl  *netlink.Conn
	raw syscall.RawConn
	buf []byte
	out []byte
	seq uint32
}

var _ Table = (*Conn)(nil)

// Open opens a netlink socket, which stays in the namespace it was opened in.
func Open(c Config) (*Conn, error) {
	nl, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: c.NetNS})
	if err != nil {
		return nil, fmt.Errorf("open conntrack socket: %w", err)
	}
	raw, err := nl.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open conntrack socket: %w", err), nl.Close())
	}
	return &Conn{nl: nl, raw: raw, buf: make([]byte, recvBytes)}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.nl.Close() }

// Flows implements Table.
func (c *Conn) Flows(ctx context.Context, f Filter, emit func(Flow)) error {
	if f.Protocol == 0 && (f.OrigPort != 0 || f.ReplyPort != 0 || f.OrigDst.IsValid() || f.ReplySrc.IsValid()) {
		return errors.New("list conntrack flows: a filter needs a protocol")
	}
	c.seq++
	e := encoder{c.out[:0]}
	e.dump(&f, c.seq)
	c.out = e.b
	if err := c.send(e.b); err != nil {
		return fmt.Errorf("list conntrack flows: %w", err)
	}
	interrupted := false
	err := c.answers(func(m message) {
		interrupted = interrupted || m.flags&unix.NLM_F_DUMP_INTR != 0
		if m.typ != msgNew || ctx.Err() != nil {
			return // after the end of ctx the rest is read, so that the socket can be used again
		}
		if x, ok := decodeFlow(m.body); ok && f.Matches(&x) {
			emit(x)
		}
	})
	switch {
	case err != nil:
		return fmt.Errorf("list conntrack flows: %w", err)
	case ctx.Err() != nil:
		return ctx.Err()
	case interrupted:
		return ErrInterrupted
	}
	return nil
}

// Delete implements Table.
func (c *Conn) Delete(ctx context.Context, flows []Flow) (int, error) {
	done := 0
	for len(flows) > 0 && ctx.Err() == nil {
		n := min(len(flows), deleteChunk)
		deleted, err := c.deleteSome(flows[:n])
		done += deleted
		if err != nil {
			return done, err
		}
		flows = flows[n:]
	}
	return done, ctx.Err()
}

// deleteSome sends up to deleteChunk deletions in one datagram: only the last
// asks for an acknowledgement, the others answer when they fail.
func (c *Conn) deleteSome(flows []Flow) (int, error) {
	e := encoder{c.out[:0]}
	first := c.seq + 1
	for i := range flows {
		c.seq++
		var flags uint16
		if i == len(flows)-1 {
			flags = unix.NLM_F_ACK
		}
		e.remove(&flows[i], flags, c.seq)
	}
	c.out = e.b
	if err := c.send(e.b); err != nil {
		return 0, fmt.Errorf("delete conntrack flows: %w", err)
	}
	done, failed := len(flows), error(nil)
	for {
		last, err := c.datagram(func(m message) bool {
			if m.typ != unix.NLMSG_ERROR || m.seq-first >= uint32(len(flows)) {
				return false
			}
			if no := m.errno(); no != 0 {
				done--
				if no != unix.ENOENT && failed == nil {
					failed = fmt.Errorf("delete conntrack flow %s: %w", &flows[m.seq-first], no)
				}
			}
			return m.seq == c.seq
		})
		if err != nil {
			return 0, fmt.Errorf("delete conntrack flows: %w", err)
		}
		if last {
			return done, failed
		}
	}
}

func (c *Conn) send(b []byte) error {
	return c.control(func(fd int) error {
		return unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	})
}

func (c *Conn) control(f func(fd int) error) error {
	var err error
	if cerr := c.raw.Control(func(fd uintptr) {
		for {
			if err = f(int(fd)); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}); cerr != nil {
		return cerr
	}
	return err
}

// message is one received netlink message; body follows the netlink header.
type message struct {
	typ, flags uint16
	seq        uint32
	body       []byte
}

// errno of an NLMSG_ERROR or NLMSG_DONE message; 0 is an acknowledgement.
func (m *message) errno() unix.Errno {
	if len(m.body) < 4 {
		return 0
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(m.body)))
}

// answers reads all messages of the dump just asked for.
func (c *Conn) answers(f func(message)) error {
	var failed error
	for {
		done, err := c.datagram(func(m message) bool {
			if m.seq != c.seq {
				return false
			}
			if m.typ != unix.NLMSG_ERROR && m.typ != unix.NLMSG_DONE {
				f(m)
				return false
			}
			if no := m.errno(); no != 0 {
				failed = no
			}
			return true
		})
		if err != nil || done {
			return errors.Join(err, failed)
		}
	}
}

// datagram reads one datagram and gives its messages to f until that is done.
// Netlink answers within send and goes on with a dump within recv, so there is
// never anything to wait for: EAGAIN would be a fault.
func (c *Conn) datagram(f func(message) (done bool)) (bool, error) {
	n := 0
	err := c.control(func(fd int) (err error) {
		n, _, err = unix.Recvfrom(fd, c.buf, unix.MSG_DONTWAIT)
		return err
	})
	if err != nil {
		return false, err
	}
	for b := c.buf[:n]; len(b) >= headerLen; {
		size := int(binary.NativeEndian.Uint32(b))
		if size < headerLen || size > len(b) {
			return false, fmt.Errorf("netlink message of %d bytes in %d", size, len(b))
		}
		if f(message{
			typ: binary.NativeEndian.Uint16(b[4:]), flags: binary.NativeEndian.Uint16(b[6:]),
			seq: binary.NativeEndian.Uint32(b[8:]), body: b[headerLen:size],
		}) {
			return true, nil
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return false, nil
}
