package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

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
	out, err := settle(buf, func(r *Real) netip.AddrPort { return r.At }, func(add func(Real)) (whole bool, err error) {
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

// virtuals returns the virtual servers of both families that have an address.
func (c *Conn) virtuals(ctx context.Context) ([]Virtual, error) {
	out, err := settle(nil, func(v *Virtual) VirtualKey { return v.VirtualKey }, func(add func(Virtual)) (whole bool, err error) {
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

// readings bounds the retries of a list.
const readings = 8

// settle reads a list into a buffer. A dump in several datagrams continues, in each, at the index that the earlier ones reached
// (ip_vs_genl_dump_dests). So it misses entries if earlier ones were deleted in the meantime, and repeats entries if
// others were inserted before them; the kernel does not report that. Such a list is read until two consecutive reads agree.
func settle[K comparable, V any](buf []V, key func(*V) K, read func(add func(V)) (whole bool, err error)) ([]V, error) {
	var last []K
	for range readings {
		buf = buf[:0]
		whole, err := read(func(v V) { buf = append(buf, v) })
		if err != nil || whole {
			return buf, err
		}
		now := make([]K, len(buf))
		for i := range buf {
			now[i] = key(&buf[i])
		}
		if slices.Equal(last, now) && !repeats(now) {
			return buf, nil
		}
		last = now
	}
	return nil, ErrInterrupted
}

// repeats reports whether a list has duplicates.
func repeats[K comparable](list []K) bool {
	known := make(map[K]bool, len(list))
	for _, k := range list {
		known[k] = true
	}
	return len(known) < len(list)
}
