package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Virtual implements Kernel.
func (c *Conn) Virtual(ctx context.Context, k VirtualKey) (v Virtual, found bool, err error) {
	_, err = c.ask(ctx, c.family, command{cmdGetService, 0, func(m *message) { m.of(k) }}, func(attrs []byte) (err error) {
		v, err = decodeVirtual(attrs, &c.names)
		return err
	})
	if errors.Is(err, unix.ESRCH) {
		return Virtual{}, false, nil
	}
	if err != nil {
		return Virtual{}, false, fmt.Errorf("look up virtual server %s: %w", k, err)
	}
	return v, true, nil
}

// Reals implements Kernel.
func (c *Conn) Reals(ctx context.Context, of VirtualKey) ([]Real, error) {
	return c.realsInto(ctx, nil, of)
}

// realsInto reads the real servers of a virtual one into a buffer.
func (c *Conn) realsInto(ctx context.Context, buf []Real, of VirtualKey) ([]Real, error) {
	list := command{cmdGetDest, unix.NLM_F_DUMP, func(m *message) { m.of(of) }}
	out, err := settle(buf, func(r *Real) netip.AddrPort { return r.At }, func(add func(Real)) (parts bool, err error) {
		return c.ask(ctx, c.family, list, func(attrs []byte) error {
			r, err := decodeReal(attrs, family(of.Addr))
			if err == nil {
				add(r)
			}
			return err
		})
	})
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the real servers of %s: %w", of, err)
	}
	return out, nil
}

// virtuals lists the virtual servers of both families that have an address.
func (c *Conn) virtuals(ctx context.Context) ([]Virtual, error) {
	out, err := settle(nil, func(v *Virtual) VirtualKey { return v.VirtualKey }, func(add func(Virtual)) (parts bool, err error) {
		return c.ask(ctx, c.family, command{cmdGetService, unix.NLM_F_DUMP, nil}, func(attrs []byte) error {
			v, err := decodeVirtual(attrs, &c.names)
			if v.Addr.IsValid() {
				add(v)
			}
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list virtual servers: %w", err)
	}
	return out, nil
}

// readings bounds how often a list is read.
const readings = 8

// settle reads a list into a buffer. A dump in several datagrams goes on, in each, behind as many as it gave in those before
// (ip_vs_genl_dump_dests). So it misses some if others were taken away before them meanwhile, and gives some twice if
// others were put in before them. Such a list is read until a reading finds nothing new.
func settle[K comparable, V any](buf []V, key func(*V) K, read func(add func(V)) (parts bool, err error)) ([]V, error) {
	out := buf[:0]
	parts, err := read(func(v V) { out = append(out, v) })
	if err != nil || !parts {
		return out, err
	}
	places := make(map[K]int, len(out))
	once := out[:0] // of the same memory: it never has more than was read of it
	add := func(v V) {
		at, known := places[key(&v)]
		if known {
			once[at] = v
			return
		}
		places[key(&v)] = len(once)
		once = append(once, v)
	}
	for _, v := range out {
		add(v)
	}
	for range readings - 1 {
		before := len(once)
		if _, err := read(add); err != nil {
			return nil, err
		}
		if len(once) == before {
			return once, nil
		}
	}
	return nil, ErrInterrupted
}
