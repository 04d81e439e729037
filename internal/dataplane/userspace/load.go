package userspace

import (
	"context"
	"net/netip"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/model"
)

// Load implements dataplane.Driver. It reports the objects of this process, and the routes and
// routing rules in the kernel. It reports a pending socket too: the driver retries it.
func (d *Driver) Load(ctx context.Context, emit func(dataplane.Key, string)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	there, err := d.listed()
	if err != nil {
		return err
	}
	clear(d.routes)
	for _, a := range there.routes {
		d.routes[a] = struct{}{}
	}
	clear(d.ports)
	for _, p := range there.ports {
		d.ports[p.Server] = p.Refuse
	}
	clear(d.returned)
	for _, s := range there.returns {
		d.returned[s] = struct{}{}
	}
	there.each(emit)
	d.held(func(k dataplane.Key, value string) {
		if ctx.Err() == nil {
			emit(k, value)
		}
	})
	if ctx.Err() == nil {
		d.broken = false
	}
	return ctx.Err()
}

// Survey implements dataplane.Driver. It reads the kernel before it locks d.mu.
func (d *Driver) Survey(ctx context.Context, emit func(dataplane.Key, string)) error {
	there, err := d.listed()
	if err != nil {
		return err
	}
	there.each(emit)
	var ours []dataplane.Object
	d.mu.Lock()
	d.held(func(k dataplane.Key, value string) { ours = append(ours, dataplane.Object{Key: k, Value: value}) })
	d.mu.Unlock()
	for _, o := range ours {
		emit(o.Key, o.Value)
	}
	return ctx.Err()
}

// listed is the actual state of this driver's routes and routing rules in the kernel.
type listed struct {
	routes  []netip.Addr
	ports   []link.Port
	returns []link.Server
}

func (d *Driver) listed() (l listed, err error) {
	if d.p.Routes != nil {
		if l.routes, err = d.p.Routes.List(); err != nil {
			return l, err
		}
	}
	if d.p.Ports != nil {
		if l.ports, err = d.p.Ports.List(); err != nil {
			return l, err
		}
	}
	if d.p.Returns != nil {
		l.returns, err = d.p.Returns.List()
	}
	return l, err
}

func (l *listed) each(emit func(dataplane.Key, string)) {
	for _, a := range l.routes {
		emit(dataplane.Key{Kind: kindRoute, Family: model.FamilyOf(a), ID: a.String()}, present)
	}
	for _, p := range l.ports {
		emit(portKey(p.Server), valueOfPort(p.Refuse))
	}
	for _, s := range l.returns {
		emit(returnKey(s), present)
	}
}

// held emits all objects but the routes and the routing rules.
func (d *Driver) held(emit func(dataplane.Key, string)) {
	for f, value := range d.where {
		emit(dataplane.Key{Kind: kindWhere, Family: f}, value)
	}
	for id, t := range d.targets {
		emit(dataplane.Key{Kind: kindTarget, Family: t.family, ID: id}, t.value)
	}
	for id, s := range d.sockets {
		emit(dataplane.Key{Kind: kindSocket, Family: s.family, ID: id}, present)
	}
}

// Changed implements dataplane.Driver. It returns true if an Apply has failed, or a route or a rule has been deleted.
func (d *Driver) Changed(context.Context) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, check := range []func() (bool, error){d.returnsGone, d.portsGone} {
		if gone, err := check(); gone || err != nil {
			return gone, err
		}
	}
	if d.broken || len(d.routes) == 0 || d.p.Routes == nil {
		return d.broken, nil
	}
	list, err := d.p.Routes.List()
	if err != nil {
		return false, err
	}
	here := 0
	for _, a := range list {
		if _, ours := d.routes[a]; ours {
			here++
		}
	}
	return here < len(d.routes), nil
}
