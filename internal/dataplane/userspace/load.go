package userspace

import (
	"context"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// Load implements dataplane.Driver: what this process holds, and the routes that the
// kernel has. A socket that waits for its port is held: it is known and tried again.
func (d *Driver) Load(ctx context.Context, emit func(dataplane.Key, string)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.p.Routes != nil {
		list, err := d.p.Routes.List()
		if err != nil {
			return err
		}
		clear(d.routes)
		for _, a := range list {
			d.routes[a] = struct{}{}
			emit(dataplane.Key{Kind: kindRoute, Family: model.FamilyOf(a), ID: a.String()}, present)
		}
	}
	if err := d.loadReturns(emit); err != nil {
		return err
	}
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

// held gives all but the routes and the rules for answers.
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

// Changed implements dataplane.Driver: an Apply has failed, or a route or a rule is gone.
func (d *Driver) Changed(context.Context) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if gone, err := d.returnsGone(); gone || err != nil {
		return gone, err
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
