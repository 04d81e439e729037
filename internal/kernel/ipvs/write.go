package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// put creates an object with one command or, if it exists, updates it with the other.
func (c *Conn) put(ctx context.Context, make, change uint8, fill func(m *message)) error {
	err := c.do(ctx, make, fill)
	if errors.Is(err, unix.EEXIST) {
		err = c.do(ctx, change, fill)
	}
	return err
}

// PutVirtual implements Kernel.
func (c *Conn) PutVirtual(ctx context.Context, v Virtual) error {
	if err := c.put(ctx, cmdNewService, cmdSetService, func(m *message) { m.virtual(&v) }); err != nil {
		return fmt.Errorf("write virtual server %s with scheduler %s: %w", v.VirtualKey, v.Scheduler, err)
	}
	return nil
}

// PutReal implements Kernel.
func (c *Conn) PutReal(ctx context.Context, of VirtualKey, r Real) error {
	if err := c.put(ctx, cmdNewDest, cmdSetDest, func(m *message) { m.of(of); m.real(&r) }); err != nil {
		return fmt.Errorf("write real server %s of %s: %w", r.At, of, err)
	}
	return nil
}

// DelVirtual implements Kernel.
func (c *Conn) DelVirtual(ctx context.Context, k VirtualKey) error {
	err := c.do(ctx, cmdDelService, func(m *message) { m.of(k) })
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("delete virtual server %s: %w", k, err)
	}
	return nil
}

// DelReal implements Kernel.
func (c *Conn) DelReal(ctx context.Context, of VirtualKey, at netip.AddrPort) error {
	err := c.do(ctx, cmdDelDest, func(m *message) { m.of(of); m.real(&Real{At: at}) })
	if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete real server %s of %s: %w", at, of, err)
	}
	return nil
}

// SetTimeouts implements Kernel.
func (c *Conn) SetTimeouts(ctx context.Context, t Timeouts) error {
	err := c.do(ctx, cmdSetConfig, func(m *message) {
		m.u32(attrTCP, uint32(t.TCP/time.Second)) // the kernel ignores zeros
		m.u32(attrTCPFin, uint32(t.TCPFin/time.Second))
		m.u32(attrUDP, uint32(t.UDP/time.Second))
	})
	if err != nil {
		return fmt.Errorf("set the timeouts of IPVS: %w", err)
	}
	return nil
}
