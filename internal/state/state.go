package state

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// State is the current inputs. It keeps the objects of the events, which are read-only from then on. It is not safe for
// concurrent use; the engine's goroutine owns it.
//
// Example: Apply of an event with the EndpointSlice web-x7k2q of Service shop/web replaces the slice, and returns
// Changes{Dirty: {shop/web}, Was: [the previous slice]}. The same event again returns no changes and NoOps 1, because the
// objects are compared by content. If the slice is then assigned to Service shop/cart, both Services are dirty. A slice may
// come before its Service; policy then has a Service nil and decides no Frontends.
type State struct {
	services map[model.ServiceKey]*record
	slices   map[model.SliceKey]*model.Slice
	node     *model.Node // current object of the source; nil: it has none
	known    *model.Node // last known state; nil: there has never been one
	cluster  bool        // a Node, this machine's or another's, was seen
	host     model.HostAddrs
	cidrs    model.ServiceCIDRs
	excluded model.Exclusions
	proxied  int // Services with Proxied

	endpoints int // in all slices
}

// record holds the objects of one Service key. The Service may be nil, because slices
// often come first.
type record struct {
	service *model.Service
	slices  []*model.Slice // sorted by key, so that policy's input has one order
}

// New returns an empty State.
func New() *State {
	return &State{services: map[model.ServiceKey]*record{}, slices: map[model.SliceKey]*model.Slice{}}
}

// Changes is the result of Apply: what a batch of events changed.
type Changes struct {
	Dirty  map[model.ServiceKey]struct{} // Services whose Frontends may differ because of their own objects, or of the zone
	View   bool                          // an input of NodeView differs
	Was    []*model.Slice                // previous states of the slices that were replaced or deleted
	Synced []string                      // sources that reported Synced
	// NoOps counts events that changed nothing (kpng's finding: most of them).
	NoOps int
}

// Apply folds events into the state, in order, and returns what they changed. Event.Listed and Event.Origin do not affect
// the state.
func (s *State) Apply(events []model.Event) Changes {
	c := Changes{Dirty: map[model.ServiceKey]struct{}{}}
	for i := range events {
		ev := &events[i]
		switch {
		case ev.Service != nil:
			s.applyService(ev.Service.Key, ev.Service.Value, &c)
		case ev.Slice != nil:
			s.applySlice(ev.Slice.Key, ev.Slice.Value, &c)
		case ev.Node != nil:
			s.applyNode(ev.Node.Value, &c)
		case ev.Host != nil:
			s.applyHost(*ev.Host, &c)
		case ev.CIDRs != nil:
			s.applyCIDRs(*ev.CIDRs, &c)
		case ev.Cluster:
			s.applyCluster(&c)
		case ev.Exclusions != nil:
			s.applyExclusions(*ev.Exclusions, &c)
		case ev.Synced != "":
			c.Synced = append(c.Synced, ev.Synced)
		}
	}
	return c
}

// applyService replaces a Service; svc is nil if it was deleted.
func (s *State) applyService(key model.ServiceKey, svc *model.Service, c *Changes) {
	r := s.services[key]
	if r == nil {
		if svc == nil {
			c.NoOps++
			return
		}
		r = &record{}
		s.services[key] = r
	}
	if r.service.Equal(svc) {
		c.NoOps++
		return
	}
	s.proxied += count(svc) - count(r.service)
	r.service = svc
	c.Dirty[key] = struct{}{}
	s.drop(key, r)
}

func count(svc *model.Service) int {
	if svc != nil && svc.Proxied {
		return 1
	}
	return 0
}

// applySlice replaces a slice; sl is nil if it was deleted. Both the old and the new Service of the slice become dirty.
func (s *State) applySlice(key model.SliceKey, sl *model.Slice, c *Changes) {
	old := s.slices[key]
	if old.Equal(sl) {
		c.NoOps++
		return
	}
	if old != nil {
		c.Was = append(c.Was, old)
		s.unlink(old)
		s.endpoints -= len(old.Endpoints)
		c.Dirty[old.Service] = struct{}{}
	}
	if sl == nil {
		delete(s.slices, key)
		return
	}
	s.slices[key] = sl
	s.endpoints += len(sl.Endpoints)
	r := s.services[sl.Service]
	if r == nil {
		r = &record{}
		s.services[sl.Service] = r
	}
	at, _ := slices.BinarySearchFunc(r.slices, key, compareSlice)
	r.slices = slices.Insert(r.slices, at, sl)
	c.Dirty[sl.Service] = struct{}{}
}

// unlink removes a slice from the record of its Service.
func (s *State) unlink(sl *model.Slice) {
	r := s.services[sl.Service]
	if at, ok := slices.BinarySearchFunc(r.slices, sl.Key, compareSlice); ok {
		r.slices = slices.Delete(r.slices, at, at+1)
	}
	s.drop(sl.Service, r)
}

func compareSlice(a *model.Slice, k model.SliceKey) int {
	return model.ServiceKey(a.Key).Compare(model.ServiceKey(k))
}

// drop deletes a record that holds no object.
func (s *State) drop(key model.ServiceKey, r *record) {
	if r.service == nil && len(r.slices) == 0 {
		delete(s.services, key)
	}
}

// applyNode updates this machine's Node. A new zone makes the Services dirty whose slices have topology hints.
func (s *State) applyNode(n *model.Node, c *Changes) {
	if s.node.Equal(n) {
		c.NoOps++
		return
	}
	before := s.Zone()
	s.node, s.known = n, lastKnown(s.known, n)
	s.cluster = s.cluster || n != nil
	c.View = true
	if s.Zone() == before {
		return
	}
	for key, r := range s.services {
		if r.hinted() {
			c.Dirty[key] = struct{}{}
		}
	}
}

// lastKnown returns the last known state of this machine's Node after an update from old to
// now. A deleted Node stays known, as in kube-proxy, because the machine and its pods still
// exist. Addresses and pod CIDRs that a new Node of the same name lacks stay known too,
// because controllers fill them in after kubelet has registered it.
func lastKnown(old, now *model.Node) *model.Node {
	if old == nil || now == nil {
		return cmp.Or(now, old)
	}
	n := *now
	if len(n.Addrs) == 0 {
		n.Addrs = old.Addrs
	}
	if len(n.PodCIDRs) == 0 {
		n.PodCIDRs = old.PodCIDRs
	}
	return &n
}

func (s *State) applyCluster(c *Changes) {
	if s.cluster {
		c.NoOps++
		return
	}
	s.cluster, c.View = true, true
}

// hinted reports whether an endpoint of the Service has topology hints.
func (r *record) hinted() bool {
	for _, sl := range r.slices {
		for i := range sl.Endpoints {
			if sl.Endpoints[i].Hints != nil {
				return true
			}
		}
	}
	return false
}

// applyHost replaces the addresses of the links. nil (not known) and an empty list are different.
func (s *State) applyHost(h model.HostAddrs, c *Changes) {
	if (s.host.Addrs == nil) == (h.Addrs == nil) && slices.Equal(s.host.Addrs, h.Addrs) && slices.Equal(s.host.Links, h.Links) {
		c.NoOps++
		return
	}
	s.host = h
	c.View = true
}

func (s *State) applyCIDRs(v model.ServiceCIDRs, c *Changes) {
	if slices.Equal(s.cidrs.Prefixes, v.Prefixes) {
		c.NoOps++
		return
	}
	s.cidrs = v
	c.View = true
}

func (s *State) applyExclusions(x model.Exclusions, c *Changes) {
	if slices.Equal(s.excluded.Prefixes, x.Prefixes) {
		c.NoOps++
		return
	}
	s.excluded = x
	c.View = true
}
