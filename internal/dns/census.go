package dns

import (
	"net/netip"
)

// census is the count of the endpoints in the slices of one Service, for a status. It is
// made on request and cached until the Service changes, so that all clients that wait
// for one Service share it.
type census struct {
	ready   []Member
	waiting []Member // not ready
	hosts   map[string]Member

	readyPods, waitingPods int
}

// Member is one endpoint; one address under two hostnames is two.
type Member struct {
	Host  string
	Addr  netip.Addr
	Ready bool
}

// count returns the record's census. Store.mu is held, for reading at least: two
// readers may count at once, and then one result is lost.
func (r *record) count() *census {
	if c := r.census.Load(); c != nil {
		return c
	}
	c := &census{hosts: map[string]Member{}}
	seen := map[Member]struct{}{}
	for _, sl := range r.slices {
		for i := range sl.Endpoints {
			e := &sl.Endpoints[i]
			m := Member{hostOf(e), e.Addr, e.Ready}
			if _, ok := seen[m]; ok {
				continue
			}
			seen[m] = struct{}{}
			if m.Ready {
				c.ready = append(c.ready, m)
			} else {
				c.waiting = append(c.waiting, m)
			}
			if old, ok := c.hosts[m.Host]; !ok || m.Ready && !old.Ready {
				c.hosts[m.Host] = m
			}
		}
	}
	c.readyPods, c.waitingPods = CountPods(c.ready), CountPods(c.waiting)
	r.census.Store(c)
	return c
}

// CountPods counts pods by their addresses. An EndpointSlice does not say which
// addresses belong to one pod: a pod of two families is in two slices. It has one
// address of each family, and often a hostname. The result is the largest number
// that is certain: as many as addresses of one family, and as many as hostnames,
// with those that have none counted by family again.
func CountPods(list []Member) int {
	var v4, v6, unnamedV4, unnamedV6 int
	named := map[string]struct{}{}
	for i := range list {
		m := &list[i]
		all, unnamed := &v6, &unnamedV6
		if m.Addr.Is4() {
			all, unnamed = &v4, &unnamedV4
		}
		*all++
		if m.Host == dashed(m.Addr) {
			*unnamed++
		} else {
			named[m.Host] = struct{}{}
		}
	}
	return max(v4, v6, len(named)+max(unnamedV4, unnamedV6))
}
