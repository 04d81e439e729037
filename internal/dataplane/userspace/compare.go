package userspace

import (
	"context"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// Compare implements dataplane.Driver. A socket that waits for a port that somebody else
// has is not there: connections to it go to somebody else.
func (d *Driver) Compare(ctx context.Context, want []dataplane.Object, differs func(dataplane.Key, string)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	routes, returned, err := d.inKernel()
	if err != nil {
		return err
	}
	for i := range want {
		o := &want[i]
		found := ""
		switch o.Key.Kind {
		case kindWhere:
			found = d.where[o.Key.Family]
		case kindRoute, kindReturn:
			if _, there := routes[o.Key.ID]; there || returned[o.Key] {
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

// inKernel reads the routes, by address, and the rules for answers.
func (d *Driver) inKernel() (routes map[string]struct{}, returned map[dataplane.Key]bool, err error) {
	routes, returned = map[string]struct{}{}, map[dataplane.Key]bool{}
	if d.p.Routes != nil {
		list, err := d.p.Routes.List()
		if err != nil {
			return nil, nil, err
		}
		for _, a := range list {
			routes[a.String()] = struct{}{}
		}
	}
	if d.p.Returns != nil {
		list, err := d.p.Returns.List()
		if err != nil {
			return nil, nil, err
		}
		for _, s := range list {
			returned[returnKey(s)] = true
		}
	}
	return routes, returned, nil
}
