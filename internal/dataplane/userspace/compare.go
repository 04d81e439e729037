package userspace

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// Compare implements dataplane.Driver. It reports a pending socket as missing: if another
// program has the port, that program receives the connections.
func (d *Driver) Compare(ctx context.Context, want []dataplane.Object, differs func(dataplane.Key, string)) error {
	inKernel, err := d.inKernel(want) // before d.mu is locked
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
		case kindRoute, kindPort, kindReturn:
			found = inKernel[o.Key]
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

// inKernel returns the actual values of the routes and routing rules in want that exist. It looks up routes one by one, because there may be
// very many others; rules can only be listed.
func (d *Driver) inKernel(want []dataplane.Object) (map[dataplane.Key]string, error) {
	out, returns, ports := map[dataplane.Key]string{}, false, false
	for i := range want {
		k := want[i].Key
		switch {
		case k.Kind == kindRoute && d.p.Routes != nil:
			a, err := netip.ParseAddr(k.ID)
			if err != nil {
				return nil, fmt.Errorf("read a route: %w", err)
			}
			has, err := d.p.Routes.Has(a)
			if err != nil {
				return nil, err
			}
			if has {
				out[k] = present
			}
		case k.Kind == kindReturn && !returns:
			if err := d.returnsInKernel(out); err != nil {
				return nil, err
			}
			returns = true
		case k.Kind == kindPort && !ports:
			if err := d.portsInKernel(out); err != nil {
				return nil, err
			}
			ports = true
		}
	}
	return out, nil
}

func (d *Driver) returnsInKernel(out map[dataplane.Key]string) error {
	if d.p.Returns == nil {
		return nil
	}
	list, err := d.p.Returns.List()
	for _, s := range list {
		out[returnKey(s)] = present
	}
	return err
}

func (d *Driver) portsInKernel(out map[dataplane.Key]string) error {
	if d.p.Ports == nil {
		return nil
	}
	list, err := d.p.Ports.List()
	for _, p := range list {
		out[portKey(p.Server)] = valueOfPort(p.Refuse)
	}
	return err
}
