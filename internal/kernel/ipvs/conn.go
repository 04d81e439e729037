package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	kernel "github.com/fairlead/fairlead/internal/kernel/netlink"
)

// Config configures a Conn.
type Config struct {
	NetNS int // file descriptor of a network namespace; 0: the calling thread's
	// Gentle is for one that reads much and may take its time: it lets others go first.
	Gentle bool
}

// Conn is the real Kernel: generic netlink, nothing is run. (moby/ipvs would run modprobe and
// write to a log of its own; vishvananda/netlink has no IPVS.)
type Conn struct {
	nl     *netlink.Conn
	family netlink.HeaderType
	rest   *kernel.Rest // nil: it is in a hurry
}

var _ Kernel = (*Conn)(nil)

// Open opens a Conn. To ask for the family makes the kernel load the module ip_vs. A kernel
// that has none gives ErrNoIPVS.
func Open(cfg Config) (*Conn, error) {
	nl, err := netlink.Dial(unix.NETLINK_GENERIC, &netlink.Config{NetNS: cfg.NetNS})
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket to IPVS: %w", err)
	}
	c := &Conn{nl: nl}
	if cfg.Gentle {
		c.rest = &kernel.Rest{}
	}
	if c.family, err = findFamily(nl); err != nil {
		_ = nl.Close() // the first error says more
		return nil, err
	}
	return c, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.nl.Close() }

func findFamily(nl *netlink.Conn) (netlink.HeaderType, error) {
	body, err := message(unix.CTRL_CMD_GETFAMILY, func(e *netlink.AttributeEncoder) { e.String(unix.CTRL_ATTR_FAMILY_NAME, familyName) })
	if err != nil {
		return 0, err
	}
	answers, err := nl.Execute(netlink.Message{Header: netlink.Header{Type: unix.GENL_ID_CTRL, Flags: netlink.Request}, Data: body})
	if errors.Is(err, unix.ENOENT) {
		return 0, ErrNoIPVS
	}
	if err != nil {
		return 0, fmt.Errorf("find IPVS in the kernel: %w", err)
	}
	for _, m := range answers {
		if len(m.Data) < 4 {
			continue
		}
		d, err := netlink.NewAttributeDecoder(m.Data[4:])
		if err != nil {
			return 0, err
		}
		for d.Next() {
			if d.Type() == unix.CTRL_ATTR_FAMILY_ID {
				return netlink.HeaderType(d.Uint16()), nil
			}
		}
	}
	return 0, ErrNoIPVS
}

// do sends one command and gives its answers.
func (c *Conn) do(ctx context.Context, cmd uint8, flags netlink.HeaderFlags, fill func(e *netlink.AttributeEncoder)) ([]netlink.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c.rest != nil {
		c.rest.Pause()
	}
	body, err := message(cmd, fill)
	if err != nil {
		return nil, err
	}
	return c.nl.Execute(netlink.Message{Header: netlink.Header{Type: c.family, Flags: netlink.Request | flags}, Data: body})
}

// Virtuals implements Kernel.
func (c *Conn) Virtuals(ctx context.Context) ([]Virtual, error) {
	answers, err := c.do(ctx, cmdGetService, netlink.Dump, nil)
	if err != nil {
		return nil, fmt.Errorf("list virtual servers: %w", err)
	}
	out := make([]Virtual, 0, len(answers))
	for _, m := range answers {
		v, err := decodeVirtual(m.Data)
		if err != nil {
			return nil, fmt.Errorf("read a virtual server: %w", err)
		}
		out = append(out, v)
	}
	return out, nil
}

// Virtual implements Kernel.
func (c *Conn) Virtual(ctx context.Context, k VirtualKey) (Virtual, bool, error) {
	answers, err := c.do(ctx, cmdGetService, 0, func(e *netlink.AttributeEncoder) { service(e, k) })
	if errors.Is(err, unix.ESRCH) || err == nil && len(answers) == 0 {
		return Virtual{}, false, nil
	}
	if err != nil {
		return Virtual{}, false, fmt.Errorf("look up virtual server %s: %w", k, err)
	}
	v, err := decodeVirtual(answers[0].Data)
	if err != nil {
		return Virtual{}, false, fmt.Errorf("read virtual server %s: %w", k, err)
	}
	return v, true, nil
}

// Reals implements Kernel.
func (c *Conn) Reals(ctx context.Context, of VirtualKey) ([]Real, error) {
	answers, err := c.do(ctx, cmdGetDest, netlink.Dump, func(e *netlink.AttributeEncoder) { service(e, of) })
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the real servers of %s: %w", of, err)
	}
	out := make([]Real, 0, len(answers))
	for _, m := range answers {
		r, err := decodeReal(m.Data, of)
		if err != nil {
			return nil, fmt.Errorf("read a real server of %s: %w", of, err)
		}
		out = append(out, r)
	}
	return out, nil
}

func service(e *netlink.AttributeEncoder, k VirtualKey) {
	e.Nested(attrService, func(e *netlink.AttributeEncoder) error { encodeKey(e, k); return nil })
}

// put makes with one command, or if it is there changes with the other.
func (c *Conn) put(ctx context.Context, make, change uint8, fill func(e *netlink.AttributeEncoder)) error {
	_, err := c.do(ctx, make, netlink.Acknowledge, fill)
	if errors.Is(err, unix.EEXIST) {
		_, err = c.do(ctx, change, netlink.Acknowledge, fill)
	}
	return err
}

// PutVirtual implements Kernel.
func (c *Conn) PutVirtual(ctx context.Context, v Virtual) error {
	err := c.put(ctx, cmdNewService, cmdSetService, func(e *netlink.AttributeEncoder) {
		e.Nested(attrService, func(e *netlink.AttributeEncoder) error { encodeVirtual(e, &v); return nil })
	})
	if err != nil {
		return fmt.Errorf("put virtual server %s with scheduler %s: %w", v.VirtualKey, v.Scheduler, err)
	}
	return nil
}

// PutReal implements Kernel.
func (c *Conn) PutReal(ctx context.Context, of VirtualKey, r Real) error {
	err := c.put(ctx, cmdNewDest, cmdSetDest, func(e *netlink.AttributeEncoder) {
		service(e, of)
		e.Nested(attrDest, func(e *netlink.AttributeEncoder) error { encodeReal(e, &r); return nil })
	})
	if err != nil {
		return fmt.Errorf("put real server %s of %s: %w", r.At, of, err)
	}
	return nil
}

// DelVirtual implements Kernel.
func (c *Conn) DelVirtual(ctx context.Context, k VirtualKey) error {
	_, err := c.do(ctx, cmdDelService, netlink.Acknowledge, func(e *netlink.AttributeEncoder) { service(e, k) })
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("delete virtual server %s: %w", k, err)
	}
	return nil
}

// DelReal implements Kernel.
func (c *Conn) DelReal(ctx context.Context, of VirtualKey, at netip.AddrPort) error {
	_, err := c.do(ctx, cmdDelDest, netlink.Acknowledge, func(e *netlink.AttributeEncoder) {
		service(e, of)
		e.Nested(attrDest, func(e *netlink.AttributeEncoder) error { encodeReal(e, &Real{At: at}); return nil })
	})
	if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete real server %s of %s: %w", at, of, err)
	}
	return nil
}

// SetTimeouts implements Kernel.
func (c *Conn) SetTimeouts(ctx context.Context, t Timeouts) error {
	_, err := c.do(ctx, cmdSetConfig, netlink.Acknowledge, func(e *netlink.AttributeEncoder) {
		e.Uint32(attrTCP, uint32(t.TCP/time.Second)) // the kernel leaves what is 0
		e.Uint32(attrTCPFin, uint32(t.TCPFin/time.Second))
		e.Uint32(attrUDP, uint32(t.UDP/time.Second))
	})
	if err != nil {
		return fmt.Errorf("set the timeouts of IPVS: %w", err)
	}
	return nil
}
