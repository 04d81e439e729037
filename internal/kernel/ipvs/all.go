package ipvs

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
)

// sight is a virtual server that was listed.
type sight struct {
	Virtual
	reals int // how many real servers it had, if the socket's options gave it; unknown otherwise
}

const unknown = -1

// All implements Kernel. What the options of a socket do not give, for whatever reason, is asked by netlink.
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

// pause is between two pieces of work.
func (c *Conn) pause(ctx context.Context) error {
	if c.rest != nil {
		c.rest.Pause()
	}
	return ctx.Err()
}

// pausing is how many virtual servers are looked at between two pauses.
const pausing = 64

// sights lists the virtual servers that are wanted.
func (c *Conn) sights(ctx context.Context, want Wanted) (list []sight, err error) {
	list = make([]sight, 0, c.listed)
	defer func() { c.listed = len(list) }()
	seen := 0
	add := func(v *Virtual, reals int) {
		if want.is(v) {
			list = append(list, sight{*v, reals})
		}
		if seen++; seen%pausing == 0 {
			_ = c.pause(ctx) // that ctx has ended is seen below
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

// realsOf reads the real servers of one that was listed, and tells whether it is there still. They are valid until it is called again.
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
	// Some have come or gone since, or there are some of IPv6, which the options leave out. Where so many come and go that
	// netlink gives no list, theirs are at least those of one moment.
	all, byNetlink := c.realsInto(ctx, nil, s.VirtualKey)
	if err == nil && errors.Is(byNetlink, ErrInterrupted) {
		return c.reals, true, nil
	}
	return all, true, byNetlink
}
