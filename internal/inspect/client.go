package inspect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/model"
)

// Client is the source of packets, as this node's rules classify it.
type Client struct {
	Addr netip.Addr `json:"address"`
	Pod  bool       `json:"pod"`  // counts as a pod
	Node bool       `json:"node"` // is an address of this node
	Why  string     `json:"why"`
}

// Routes returns the device by which an address is reached; "" if there is none or it is
// unknown.
type Routes func(netip.Addr) string

// ClientOf returns how this node's rules classify an address.
func ClientOf(a netip.Addr, v *model.NodeView, device Routes) Client {
	c := Client{Addr: a, Node: a.IsLoopback() || slices.Contains(v.NodeAddrs, a)}
	d := &v.Local
	switch d.Mode {
	case model.DetectCIDR:
		for _, p := range d.CIDRs {
			if p.Contains(a) {
				c.Pod, c.Why = true, "in "+p.String()
			}
		}
	case model.DetectBridgeInterface, model.DetectInterfaceNamePrefix:
		if link := device(a); link != "" && !c.Node {
			c.Why = "by device " + link
			c.Pod = link == d.Interface || d.Mode == model.DetectInterfaceNamePrefix && strings.HasPrefix(link, d.Interface)
		}
	default:
		c.Why = "no cluster CIDR is known, so no client is detected as a pod"
	}
	return c
}

// String returns a text such as "10.244.1.5: a pod (in 10.244.0.0/16)".
func (c Client) String() string {
	what := "neither a pod nor this node"
	switch {
	case c.Pod:
		what = "a pod"
	case c.Node:
		what = "this node"
	}
	if c.Why == "" {
		return fmt.Sprintf("%s: %s", c.Addr, what)
	}
	return fmt.Sprintf("%s: %s (%s)", c.Addr, what, c.Why)
}
