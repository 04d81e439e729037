package userspace

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// Compare implements dataplane.Driver. A socket that waits for a port that somebody else
// has is not there: connections to it go to somebody else.
func (d *Driver) Compare(ctx context.Context, want []dataplane.Object, differs func(dataplane.Key, string)) error {
	inKernel, err := d.inKernel(want) // before anything of ours is locked
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range want {
		o := &want[i]
		found := ""
		switch o.Key.Kind {
		case kindWhere:
			found = d.where[o.Key.Family]
		case kindRoute, kindReturn:
			if inKernel[o.Key] {
				found = present
			}
		case kindTarget:
			if t := d.targets[o.Key.ID]; t != nil {
				found = t.value
			}
		case kindSocket:
			if s := d.sockets[o.Key.ID]; s != nil && s.open != nil {
				found = present
			}
		}
		if found != o.Value {
			differs(o.Key, found)
		}
	}
	return ctx.Err()
}

// inKernel tells which of these routes and rules for answers are there. Routes are asked for one by one, for there may be very
// many others; rules can only be listed.
func (d *Driver) inKernel(want []dataplane.Object) (map[dataplane.Key]bool, error) {
	out, listed := map[dataplane.Key]bool{}, false
	for i := range want {
		k := want[i].Key
		switch {
		case k.Kind == kindRoute && d.p.Routes != nil:
			a, err := netip.ParseAddr(k.ID)
			if err != nil {
				return nil, fmt.Errorf("read a route: %w", err)
			}
			if out[k], err = d.p.Routes.Has(a); err != nil {
				return nil, err
			}
		case k.Kind == kindReturn && d.p.Returns != nil && !listed:
			list, err := d.p.Returns.List()
			if err != nil {
				return nil, err
			}
			for _, s := range list {
				out[returnKey(s)] = true
			}
			listed = true
		}
	}
	return out, nil
}
