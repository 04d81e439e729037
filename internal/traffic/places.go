package traffic

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// Decided says which Frontends a Service has now: none if it is gone. What its connections do after that is not counted.
func (c *Counter) Decided(svc model.ServiceKey, list []model.Frontend) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counting.Lock()
	defer c.counting.Unlock()
	before := c.of[svc]
	touched := map[*port]bool{}
	for _, key := range before {
		if p := c.leave(key, svc); p != nil {
			touched[p] = true
		}
	}
	delete(c.of, svc)
	if len(list) > 0 {
		keys := before[:0]
		for i := range list {
			keys = append(keys, list[i].Key)
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

// NodePorts says on which addresses NodePorts answer.
func (c *Counter) NodePorts(list []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = make(map[netip.Addr]struct{}, len(list))
	for _, a := range list {
		c.nodes[a] = struct{}{}
	}
}

func portOf(f *model.Frontend) ServicePort { return ServicePort{f.Service, f.Port} }

func placeOf(k model.FrontendKey) place {
	switch {
	case !k.Addr.IsValid():
		return nodePort(k.Protocol, k.Family, k.Port)
	case k.Range():
		return place{k.Protocol, netip.AddrPortFrom(k.Addr, 0)}
	}
	return place{k.Protocol, netip.AddrPortFrom(k.Addr, k.Port)}
}

// held gives the Service port that a place leads to.
func (c *Counter) held(k model.FrontendKey) *port {
	if !k.Range() {
		return c.places[placeOf(k)]
	}
	if s := c.ranges[placeOf(k)]; s != nil {
		return s.port
	}
	return nil
}

// lead has a place lead to a Service port, and gives whose it was before.
func (c *Counter) lead(f *model.Frontend) (now, before *port) {
	if before = c.held(f.Key); before != nil {
		before.keys--
	}
	p := c.ports[portOf(f)]
	if p == nil {
		p = &port{name: portOf(f)}
		c.ports[p.name] = p
	}
	p.keys++
	if f.Key.Range() {
		c.ranges[placeOf(f.Key)] = &span{f.Key.Port, f.Key.LastPort, p}
	} else {
		c.places[placeOf(f.Key)] = p
	}
	return p, before
}

// leave takes a place away, unless another Service has it already, and gives the port of this one.
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

// forget ends a Service port: nothing leads to it.
func (c *Counter) forget(p *port) {
	delete(c.ports, p.name)
	c.hide(p)
}

// hide ends the rows of a Service port.
func (c *Counter) hide(p *port) {
	if !p.shown {
		return
	}
	c.shown--
	c.endpoints -= len(p.to)
	p.shown, p.counts, p.notNamed, p.to = false, Counts{}, Counts{}, nil
}

// prune ends the rows of endpoints that a Service port has no more.
func (c *Counter) prune(p *port, list []model.Frontend) {
	for at := range p.to {
		known := slices.ContainsFunc(list, func(f model.Frontend) bool { return portOf(&f) == p.name && knows(&f, at) })
		if !known {
			delete(p.to, at)
			c.endpoints--
		}
	}
}

// knows tells whether an endpoint is one of a Frontend's, whatever it gets. Those of a range of ports have no port.
func knows(f *model.Frontend, at netip.AddrPort) bool {
	if f.Key.Range() {
		at = netip.AddrPortFrom(at.Addr(), 0)
	}
	is := func(b model.Backend) bool { return b.Addr == at.Addr() && b.Port == at.Port() }
	return slices.ContainsFunc(f.Backends, is) || slices.ContainsFunc(f.LocalBackends, is) ||
		slices.ContainsFunc(f.Others, func(o model.Other) bool { return o.Addr == at })
}
