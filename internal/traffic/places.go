package traffic

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// decided updates which places belong to a Service. Both locks are held.
func (c *Counter) decided(svc model.ServiceKey, list []told) {
	before := c.of[svc]
	touched := map[*port]bool{}
	for _, key := range before {
		if p := c.leave(key, svc); p != nil {
			touched[p] = true
		}
	}
	delete(c.of, svc)
	if len(list) == 0 {
		delete(c.refused, svc)
	} else {
		keys := before[:0]
		for i := range list {
			keys = append(keys, list[i].key)
			p, before := c.lead(&list[i])
			touched[p] = true
			if before != nil && before.keys == 0 {
				touched[before] = true
			}
		}
		c.of[svc] = slices.Clip(keys)
	}
	for p := range touched {
		if p.keys == 0 {
			c.forget(p)
			continue
		}
		c.prune(p, list)
	}
}

func placeOf(k model.FrontendKey) place {
	switch {
	case !k.Addr.IsValid():
		return nodePort(k.Protocol, k.Family, k.Port)
	case k.Range():
		return place{k.Protocol, netip.AddrPortFrom(k.Addr, 0)}
	}
	return place{k.Protocol, netip.AddrPortFrom(k.Addr, k.Port)}
}

// held returns the Service port that owns a place.
func (c *Counter) held(k model.FrontendKey) *port {
	if !k.Range() {
		return c.places[placeOf(k)]
	}
	if s := c.ranges[placeOf(k)]; s != nil {
		return s.port
	}
	return nil
}

// lead makes a Service port the owner of a place, and returns the new and the previous owner.
func (c *Counter) lead(f *told) (now, before *port) {
	if before = c.held(f.key); before != nil {
		before.keys--
	}
	p := c.ports[f.name]
	if p == nil {
		p = &port{name: f.name}
		c.ports[p.name] = p
	}
	p.keys++
	if f.key.Range() {
		c.ranges[placeOf(f.key)] = &span{f.key.Port, f.key.LastPort, p}
	} else {
		c.places[placeOf(f.key)] = p
	}
	return p, before
}

// leave removes a place of a Service, unless another Service owns it already, and returns the Service port that owned it.
func (c *Counter) leave(k model.FrontendKey, svc model.ServiceKey) *port {
	p := c.held(k)
	if p == nil || p.name.Service != svc {
		return nil
	}
	p.keys--
	if k.Range() {
		delete(c.ranges, placeOf(k))
	} else {
		delete(c.places, placeOf(k))
	}
	return p
}

// forget removes a Service port that owns no place.
func (c *Counter) forget(p *port) {
	delete(c.ports, p.name)
	c.hide(p)
}

// hide removes the rows of a Service port.
func (c *Counter) hide(p *port) {
	if !p.shown {
		return
	}
	c.shown--
	c.endpoints -= len(p.to)
	p.shown, p.counts, p.notNamed, p.to = false, Counts{}, Counts{}, nil
}

// prune removes the rows of endpoints that a Service port does not have any more.
func (c *Counter) prune(p *port, list []told) {
	for at := range p.to {
		if !slices.ContainsFunc(list, func(t told) bool { return t.name == p.name && t.knows(at) }) {
			delete(p.to, at)
			c.endpoints--
		}
	}
}

// knows reports whether an endpoint belongs to a Frontend.
func (t *told) knows(at netip.AddrPort) bool {
	if t.key.Range() {
		at = netip.AddrPortFrom(at.Addr(), 0)
	}
	return slices.Contains(t.endpoints, at)
}
