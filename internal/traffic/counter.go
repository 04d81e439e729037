package traffic

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// ServicePort names one port of a Service.
type ServicePort struct {
	Service model.ServiceKey
	Port    string // its name; "" if it has none
}

// Counts are the numbers of events.
type Counts struct {
	Connections uint64 // that were sent to an endpoint
	Unanswered  uint64 // of these, ended without one packet from the endpoint
	Refused     uint64 // first packets that were answered with a refusal
	Dropped     uint64 // first packets that were dropped
	// Sent and Received are the bytes of clients and of endpoints, of connections that have ended.
	Sent, Received uint64
}

func (c *Counts) add(d *Counts) {
	c.Connections += d.Connections
	c.Unanswered += d.Unanswered
	c.Refused += d.Refused
	c.Dropped += d.Dropped
	c.Sent += d.Sent
	c.Received += d.Received
}

func (c *Counts) events() uint64 { return c.Connections + c.Refused + c.Dropped }

// EndpointsPerService is how many rows of endpoints there are for each row of a Service port, on average.
const EndpointsPerService = 10

// place is the destination of a packet. A NodePort has no address.
type place struct {
	protocol model.Protocol
	at       netip.AddrPort
}

// Counter counts. The zero Counter is not usable: New makes one.
type Counter struct {
	newest atomic.Pointer[news] // updates that are pending; nil: none
	bell   chan struct{}        // size 1: notified when updates are pending

	mu     sync.RWMutex // guards which port owns a place, which events only read; taken before counting
	most   int          // rows of Service ports
	places map[place]*port
	ranges map[place]*span // by address, with port 0
	of     map[model.ServiceKey][]model.FrontendKey
	ports  map[ServicePort]*port
	nodes  map[netip.Addr]struct{} // addresses on which NodePorts are served; nil: not set yet, all are served

	counting  sync.Mutex // guards what follows, and what a port has counted
	shown     int        // ports that have rows
	endpoints int        // rows of endpoints
	others    Counts     // of ports without a row
	lost      uint64
	dealt     time.Time // when the rows were last assigned
	refused   map[model.ServiceKey]time.Time
}

// span is a range of ports of an address.
type span struct {
	first, last uint16
	port        *port
}

// port is one Service port.
type port struct {
	name ServicePort
	keys int // Frontends that it owns

	shown    bool
	counts   Counts // since it received its row
	lately   uint64 // connections, refusals and drops since the rows were last assigned
	to       map[netip.AddrPort]*Counts
	notNamed Counts // of endpoints without a row
}

// New returns a Counter with at most so many rows of Service ports.
func New(most int) *Counter {
	return &Counter{most: most, places: map[place]*port{}, ranges: map[place]*span{}, of: map[model.ServiceKey][]model.FrontendKey{},
		refused: map[model.ServiceKey]time.Time{}, ports: map[ServicePort]*port{}, bell: make(chan struct{}, 1)}
}

// Happened counts d for the destination of a packet and, if it is valid, for an endpoint. A destination that no Service owns is not
// counted: other programs translate packets, too.
func (c *Counter) Happened(protocol model.Protocol, to, endpoint netip.AddrPort, d Counts) {
	c.Settle()
	p := c.find(place{protocol, to})
	if p == nil {
		return
	}
	c.counting.Lock()
	defer c.counting.Unlock()
	c.add(p, endpoint, d)
}

// HappenedTo counts d for a known Service port.
func (c *Counter) HappenedTo(name ServicePort, d Counts) {
	c.Settle()
	c.mu.RLock()
	p := c.ports[name]
	c.mu.RUnlock()
	if p == nil {
		return
	}
	c.counting.Lock()
	defer c.counting.Unlock()
	c.add(p, netip.AddrPort{}, d)
}

func (c *Counter) add(p *port, endpoint netip.AddrPort, d Counts) {
	p.lately += d.events()
	if d.Refused > 0 {
		c.refused[p.name.Service] = time.Now()
	}
	if !p.shown && c.shown < c.most && d.events() > 0 {
		p.shown = true
		c.shown++
	}
	if !p.shown {
		c.others.add(&d)
		return
	}
	p.counts.add(&d)
	if !endpoint.IsValid() {
		return
	}
	if e := c.endpoint(p, endpoint); e != nil {
		e.add(&d)
		return
	}
	p.notNamed.add(&d)
}

// RefusedAt returns the time when a refusal of a Service was counted last, whether it has a row or not; zero if none was.
func (c *Counter) RefusedAt(svc model.ServiceKey) time.Time {
	c.counting.Lock()
	defer c.counting.Unlock()
	return c.refused[svc]
}

// endpoint returns the row of an endpoint, nil if there are too many.
func (c *Counter) endpoint(p *port, at netip.AddrPort) *Counts {
	e := p.to[at]
	if e == nil && c.endpoints < c.most*EndpointsPerService {
		if p.to == nil {
			p.to = map[netip.AddrPort]*Counts{}
		}
		e = &Counts{}
		p.to[at] = e
		c.endpoints++
	}
	return e
}

// Lost counts one loss: some events were not received.
func (c *Counter) Lost() {
	c.counting.Lock()
	defer c.counting.Unlock()
	c.lost++
}

func (c *Counter) find(at place) *port {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if p := c.places[at]; p != nil {
		return p
	}
	if _, is := c.nodes[at.at.Addr()]; is || c.nodes == nil || at.at.Addr().IsLoopback() {
		if p := c.places[nodePort(at.protocol, model.FamilyOf(at.at.Addr()), at.at.Port())]; p != nil {
			return p
		}
	}
	if s := c.ranges[place{at.protocol, netip.AddrPortFrom(at.at.Addr(), 0)}]; s != nil && s.first <= at.at.Port() && at.at.Port() <= s.last {
		return s.port
	}
	return nil
}

// nodePort is the place of a NodePort: the unspecified address of its family.
func nodePort(protocol model.Protocol, f model.Family, port uint16) place {
	if f == model.IPv6 {
		return place{protocol, netip.AddrPortFrom(netip.IPv6Unspecified(), port)}
	}
	return place{protocol, netip.AddrPortFrom(netip.IPv4Unspecified(), port)}
}
