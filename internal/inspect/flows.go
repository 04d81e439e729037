package inspect

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// OpenFlows is what the kernel's table of connections has to the keys of an Explanation.
type OpenFlows struct {
	FlowCount
	Took time.Duration `json:"tookNanoseconds"`
	// Elsewhere are those to what is not among the endpoints listed: it is no endpoint any more, or the list is cut.
	Elsewhere []FlowsTo `json:"elsewhere,omitempty"` // those with the most
	More      int       `json:"moreElsewhere,omitempty"`
	Err       string    `json:"error,omitempty"` // they could not be counted, or not all
}

// FlowCount counts flows.
type FlowCount struct {
	Open       int `json:"open"`
	Unanswered int `json:"unanswered,omitempty"` // of these, without a packet of the other end
}

// FlowsTo are those to one place.
type FlowsTo struct {
	Addr string `json:"address"`
	FlowCount
}

// flowEnd is where a flow goes.
type flowEnd struct {
	protocol model.Protocol
	at       netip.AddrPort
}

// Flow is one connection that the kernel knows.
type Flow struct {
	Protocol model.Protocol
	To, End  netip.AddrPort // what the client asked for, and what it was sent to
	Replied  bool
}

// FlowQuery names the flows of one look at the table; what is zero is any.
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

// Counter makes one. nodePorts are the addresses on which NodePorts answer.
func (e *Explanation) Counter(nodePorts []netip.Addr) *FlowCounter {
	return &FlowCounter{keys: e.frontends, nodes: nodePorts, to: map[flowEnd]FlowCount{}}
}

// maxPorts bounds how often the table is walked for a protocol: with more ports it is
// read once for all of them.
const maxPorts = 4

// Queries returns the looks that find every flow in question, each flow in one of them.
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
