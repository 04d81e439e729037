package inspect

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// OpenFlows counts the flows in the kernel's conntrack table to the keys of an
// Explanation.
type OpenFlows struct {
	FlowCount
	Took time.Duration `json:"tookNanoseconds"`
	// Elsewhere lists flows to destinations that are not among the listed endpoints: either the endpoint was
	// removed, or the list is truncated.
	Elsewhere []FlowsTo `json:"elsewhere,omitempty"` // the ones with the most flows
	More      int       `json:"moreElsewhere,omitempty"`
	Err       string    `json:"error,omitempty"` // why not all flows could be counted
}

// FlowCount is a number of flows.
type FlowCount struct {
	Open       int `json:"open"`
	Unanswered int `json:"unanswered,omitempty"` // of these, without a packet from the other end
}

// FlowsTo counts the flows to one destination.
type FlowsTo struct {
	Addr string `json:"address"`
	FlowCount
}

// flowEnd is the destination of a flow.
type flowEnd struct {
	protocol model.Protocol
	at       netip.AddrPort
}

// Flow is one connection in the kernel's conntrack table.
type Flow struct {
	Protocol model.Protocol
	To, End  netip.AddrPort // the address that the client connected to, and the endpoint that it was translated to
	Replied  bool
}

// FlowQuery selects the flows of one dump of the table. A zero field matches any
// value.
type FlowQuery struct {
	Family   model.Family
	Protocol model.Protocol
	Addr     netip.Addr
	Port     uint16
}

// FlowCounter counts the flows to the keys of an Explanation.
type FlowCounter struct {
	keys  []model.FrontendKey
	nodes []netip.Addr
	all   FlowCount
	to    map[flowEnd]FlowCount
}

// Counter returns a FlowCounter. nodePorts are the addresses on which NodePorts
// answer.
func (e *Explanation) Counter(nodePorts []netip.Addr) *FlowCounter {
	return &FlowCounter{keys: e.frontends, nodes: nodePorts, to: map[flowEnd]FlowCount{}}
}

// maxPorts bounds how often the table is dumped for a protocol. With more ports it is
// read once for all of them.
const maxPorts = 4

// Queries returns the queries that together return every relevant flow, each flow in
// exactly one of them.
func (c *FlowCounter) Queries() []FlowQuery {
	type asked struct {
		addrs map[netip.Addr]bool
		ports map[uint16]bool // 0: any
	}
	list := map[FlowQuery]asked{}
	for _, k := range c.keys {
		q := FlowQuery{Family: k.Family, Protocol: k.Protocol}
		a, known := list[q]
		if !known {
			a = asked{map[netip.Addr]bool{}, map[uint16]bool{}}
			list[q] = a
		}
		a.addrs[k.Addr], a.ports[k.Port] = true, true
		if k.Range() {
			a.ports[0] = true
		}
	}
	var out []FlowQuery
	for q, a := range list {
		if len(a.addrs) == 1 {
			q.Addr = slices.Collect(maps.Keys(a.addrs))[0]
		}
		if a.ports[0] || len(a.ports) > maxPorts {
			out = append(out, q)
			continue
		}
		for q.Port = range a.ports {
			out = append(out, q)
		}
	}
	return out
}

// Add counts a flow, if it is to one of the keys.
func (c *FlowCounter) Add(f Flow) {
	if !slices.ContainsFunc(c.keys, func(k model.FrontendKey) bool { return c.has(k, &f) }) {
		return
	}
	end := flowEnd{f.Protocol, f.End}
	n := c.to[end]
	n.add(f.Replied)
	c.to[end] = n
	c.all.add(f.Replied)
}

func (n *FlowCount) add(replied bool) {
	n.Open++
	if !replied {
		n.Unanswered++
	}
}

func (c *FlowCounter) has(k model.FrontendKey, f *Flow) bool {
	port := f.To.Port()
	switch {
	case k.Protocol != f.Protocol || k.Family != model.FamilyOf(f.To.Addr()):
		return false
	case k.Range():
		return k.Addr == f.To.Addr() && k.Port <= port && port <= k.LastPort
	case !k.Addr.IsValid():
		return k.Port == port && slices.Contains(c.nodes, f.To.Addr())
	}
	return k.Addr == f.To.Addr() && k.Port == port
}
