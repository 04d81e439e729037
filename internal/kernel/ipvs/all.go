package ipvs

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
)

// sight is one listed virtual server.
type sight struct {
	Virtual
	reals int // number of its real servers, if read by socket options; otherwise unknown
}

const unknown = -1

// All implements Kernel. It falls back to netlink if the socket options fail for any reason.
func (c *Conn) All(ctx context.Context, want Wanted, take func(v *Virtual, reals []Real) error) error {
	list, err := c.sights(ctx, want)
	if err != nil {
		return err
	}
	for i := range list {
		if err := c.pause(ctx); err != nil {
			return err
		}
		reals, there, err := c.realsOf(ctx, &list[i])
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		if err := take(&list[i].Virtual, reals); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// pause is called between two pieces of work.
func (c *Conn) pause(ctx context.Context) error {
	if c.rest != nil {
		c.rest.Pause()
	}
	return ctx.Err()
}

// pausing is the number of virtual servers between two pauses.
const pausing = 64

// sights lists the requested virtual servers.
func (c *Conn) sights(ctx context.Context, want Wanted) (list []sight, err error) {
	list = make([]sight, 0, c.listed)
	defer func() { c.listed = len(list) }()
	seen := 0
	add := func(v *Virtual, reals int) {
		if want.is(v) {
			list = append(list, sight{*v, reals})
		}
		if seen++; seen%pausing == 0 {
			_ = c.pause(ctx) // a done ctx is handled below
		}
	}
	byOptions := c.old != nil && c.old.virtuals(add) == nil
	if byOptions && want.OnlyIPv4 {
		return list, c.pause(ctx)
	}
	all, err := c.virtuals(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if six := all[i].Addr.Is6(); six && !want.OnlyIPv4 || !six && !byOptions {
			add(&all[i], unknown)
		}
	}
	return list, nil
}

// realsOf reads the real servers of a listed virtual server and reports whether that still exists. The slice is valid until the next call.
func (c *Conn) realsOf(ctx context.Context, s *sight) (_ []Real, there bool, err error) {
	if s.reals == unknown {
		c.reals, err = c.realsInto(ctx, c.reals, s.VirtualKey)
		return c.reals, true, err
	}
	c.reals, err = c.old.reals(c.reals[:0], s.VirtualKey, s.reals)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil, false, nil
	case err == nil && len(c.reals) == s.reals:
		return c.reals, true, nil
	}
	// The number has changed since the list, or some are of IPv6, which the socket options leave out. If they change so fast that
	// netlink returns no consistent list, the list by options is at least a snapshot of the IPv4 ones.
	all, byNetlink := c.realsInto(ctx, nil, s.VirtualKey)
	if err == nil && errors.Is(byNetlink, ErrInterrupted) {
		return c.reals, true, nil
	}
	return all, true, byNetlink
}
