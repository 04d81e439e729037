package ipvs

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// Config configures a Conn.
type Config struct {
	NetNS int // file descriptor of a network namespace; 0: the calling thread's
	// Gentle is for a Conn whose large reads are not urgent: it yields to other goroutines.
	Gentle bool
	// Wrap, unless it is nil, wraps each netlink socket. It is for tests.
	Wrap func(netlink.Wire) netlink.Wire
}

// Rest yields to other goroutines at intervals. It is for work on large reads that is not urgent.
type Rest = netlink.Rest

// Conn is the Kernel that talks to the real kernel: over generic netlink and, for large reads, socket options. It runs no
// program. (moby/ipvs would run modprobe and write to a log of its own; vishvananda/netlink has no IPVS.)
type Conn struct {
	nl     *netlink.Conn
	family uint16
	old    *options      // nil: this kernel or this architecture does not support them
	rest   *netlink.Rest // nil: not Gentle

	buf    message // from here on: scratch buffers
	names  names
	reals  []Real
	listed int // length of the last list, as a capacity hint
}

var _ Kernel = (*Conn)(nil)

// Open returns a Conn. It needs CAP_NET_ADMIN over the namespace. The lookup of the family makes the kernel load the module ip_vs.
// If the kernel has none, Open returns ErrNoIPVS.
func Open(cfg Config) (*Conn, error) {
	of := netlink.Config{NetNS: cfg.NetNS, Options: netlink.Options{Protocol: netlink.Generic}, Wrap: cfg.Wrap}
	c := &Conn{}
	if cfg.Gentle {
		c.rest, of.Wrap = &netlink.Rest{}, netlink.Gently
	}
	var err error
	if c.nl, err = netlink.Open(of); err != nil {
		return nil, fmt.Errorf("open a netlink socket to IPVS: %w", err)
	}
	if err := c.findFamily(); err != nil {
		return nil, errors.Join(err, c.nl.Close())
	}
	c.old = openOptions(cfg.NetNS)
	return c, nil
}

// Close closes the sockets.
func (c *Conn) Close() error {
	return errors.Join(c.nl.Close(), c.old.close())
}

func (c *Conn) findFamily() error {
	name := func(m *message) { m.attr(unix.CTRL_ATTR_FAMILY_NAME, append([]byte(familyName), 0)...) }
	_, err := c.ask(context.Background(), unix.GENL_ID_CTRL, command{unix.CTRL_CMD_GETFAMILY, 0, name}, func(attrs []byte) error {
		netlink.EachAttr(attrs, func(typ uint16, data []byte) {
			if typ == unix.CTRL_ATTR_FAMILY_ID {
				c.family = u16(data)
			}
		})
		return nil
	})
	switch {
	case errors.Is(err, unix.ENOENT), err == nil && c.family == 0:
		return ErrNoIPVS
	case err != nil:
		return fmt.Errorf("find IPVS in the kernel: %w", err)
	}
	return nil
}

// command is a request of generic netlink. The flags request a dump or an acknowledgement.
type command struct {
	cmd   uint8
	flags uint16
	fill  func(m *message)
}

// ask sends a command to a family and calls each with the attributes of each message of the answer. whole reports whether the
// answer is a consistent snapshot: it arrived in one datagram, and the kernel reported no concurrent change.
func (c *Conn) ask(ctx context.Context, family uint16, do command, each func(attrs []byte) error) (whole bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	c.buf = begin(c.buf, family, do.flags)
	c.buf = append(c.buf, do.cmd, version, 0, 0)
	if do.fill != nil {
		do.fill(&c.buf)
	}
	datagrams, moved, err := exchange(c.nl, c.buf, family, func(body []byte) error {
		if len(body) < genericHeader {
			return errMalformed
		}
		return each(body[genericHeader:])
	})
	return datagrams <= 1 && !moved, err
}

// do executes a command and waits for its acknowledgement.
func (c *Conn) do(ctx context.Context, cmd uint8, fill func(m *message)) error {
	_, err := c.ask(ctx, c.family, command{cmd, unix.NLM_F_ACK, fill}, func([]byte) error { return nil })
	return err
}
