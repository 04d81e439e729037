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
	// Gentle is for one that reads much and may take its time: it lets others go first.
	Gentle bool
	// Wrap puts something in front of each netlink socket. It is for tests.
	Wrap func(netlink.Wire) netlink.Wire
}

// Rest lets others go first now and then. It is for who works with much that was read, and may take his time.
type Rest = netlink.Rest

// Conn is the real Kernel: generic netlink, and for reading much the options of a socket; nothing is run. (moby/ipvs would run
// modprobe and write to a log of its own; vishvananda/netlink has no IPVS.)
type Conn struct {
	nl     *netlink.Conn
	family uint16
	old    *options      // nil: this kernel or this program has none
	rest   *netlink.Rest // nil: it is in a hurry

	buf    message // what follows is scratch
	names  names
	reals  []Real
	listed int // how many were listed last: as many may be now
}

var _ Kernel = (*Conn)(nil)

// Open opens a Conn. It needs CAP_NET_ADMIN over the namespace. To ask for the family makes the kernel load the module ip_vs.
// A kernel that has none gives ErrNoIPVS.
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

// command is a request of generic netlink. A dump or an acknowledgement is asked for by flags.
type command struct {
	cmd   uint8
	flags uint16
	fill  func(m *message)
}

// ask sends a command to a family and hands the attributes of each message of the answer to each. They are whole if none
// came later than others, when there may be others in the kernel.
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

// do has a command done.
func (c *Conn) do(ctx context.Context, cmd uint8, fill func(m *message)) error {
	_, err := c.ask(ctx, c.family, command{cmd, unix.NLM_F_ACK, fill}, func([]byte) error { return nil })
	return err
}
