package traffic

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Row holds the counts of one Service port, and by endpoint.
type Row struct {
	ServicePort
	Counts
	Endpoints []EndpointRow
	NotNamed  Counts // of its endpoints without a row
}

// EndpointRow holds the counts of one endpoint for one Service port.
type EndpointRow struct {
	At netip.AddrPort
	Counts
}

// Rows is a snapshot of all counts.
type Rows struct {
	Services []Row
	Others   Counts // of Service ports without a row, when they had none
	Lost     uint64 // how often events were lost
}

// dealEvery is how often Service ports may change rows.
const dealEvery = time.Minute

// Rows returns a snapshot of all counts. now decides whether the busiest Service ports are chosen again.
func (c *Counter) Rows(now time.Time) Rows {
	c.Settle()
	c.mu.RLock() // no Service is added or removed during this
	defer c.mu.RUnlock()
	c.counting.Lock()
	defer c.counting.Unlock()
	if now.Sub(c.dealt) >= dealEvery {
		c.deal()
		c.dealt = now
	}
	out := Rows{Others: c.others, Lost: c.lost}
	for _, p := range c.ports {
		if !p.shown {
			continue
		}
		r := Row{ServicePort: p.name, Counts: p.counts, NotNamed: p.notNamed}
		for at, n := range p.to {
			r.Endpoints = append(r.Endpoints, EndpointRow{at, *n})
		}
		out.Services = append(out.Services, r)
	}
	return out
}

// deal reassigns the rows of idle Service ports to busy ones. A port without a row must have been at least twice as busy, so that
// two equally busy ones do not alternate.
func (c *Counter) deal() {
	var in, out []*port
	for _, p := range c.ports {
		switch {
		case p.shown:
			in = append(in, p)
		case p.lately > 0:
			out = append(out, p)
		}
	}
	slices.SortFunc(in, func(a, b *port) int { return cmp.Compare(a.lately, b.lately) })
	slices.SortFunc(out, func(a, b *port) int { return cmp.Compare(b.lately, a.lately) })
	for i := range min(len(in), len(out)) {
		if out[i].lately <= 2*in[i].lately {
			break
		}
		c.hide(in[i])
		out[i].shown = true
		c.shown++
	}
	for _, p := range c.ports {
		p.lately = 0
	}
}
