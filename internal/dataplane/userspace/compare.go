package userspace

import (
	"context"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// Compare implements dataplane.Driver. A socket that waits for a port that somebody else
// has is not there: connections to it go to somebody else.
func (d *Driver) Compare(ctx context.Context, want []dataplane.Object, differs func(dataplane.Key, string)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var routes []netip.Addr
	if d.p.Routes != nil {
		var err error
		if routes, err = d.p.Routes.List(); err != nil {
			return err
		}
	}
	for i := range want {
		o := &want[i]
		found := ""
		switch o.Key.Kind {
		case kindWhere:
			found = d.where[o.Key.Family]
		case kindRoute:
			if slices.ContainsFunc(routes, func(a netip.Addr) bool { return a.String() == o.Key.ID }) {
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
