package conntrack

import (
	"context"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/conntrack"
)

// TestNodePortAddressMoves: an address comes to the node or leaves it while clients send.
func TestNodePortAddressMoves(t *testing.T) {
	const (
		early  = "udp 10.0.0.1:1001 192.168.1.6:30053 192.168.1.6:30053" // reached the node before the rules
		early6 = "udp [fd00::1]:1001 [fd02::6]:30053 [fd02::6]:30053"
		pods   = "udp 10.1.0.9:1002 192.168.1.6:30053 10.1.0.1:5353"
		others = "udp 10.1.0.9:1003 192.168.1.6:30053 10.1.0.7:5353" // another program translates it
		alias  = "udp 10.0.0.1:1004 192.168.1.6:53 10.1.0.1:5353"    // for an external address of a Service
		closed = "udp 10.0.0.1:1005 192.168.1.6:9999 192.168.1.6:9999"
		assoc  = "sctp 10.0.0.1:1006 192.168.1.6:30070 192.168.1.6:30070"
	)
	addrs := func(list ...string) (out []netip.Addr) {
		for _, a := range list {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	one, both := addrs("192.168.1.5"), addrs("192.168.1.5", "192.168.1.6")
	services := []string{"udp :30053 10.1.0.1:5353", "udp 192.168.1.6:53 10.1.0.1:5353", "sctp :30070 10.1.0.1:7070", "tcp :30080 10.1.0.1:8080"}
	for name, c := range map[string]struct {
		before []netip.Addr
		flows  []string
		moves  [][]netip.Addr
		left   []string
		dumps  int
	}{
		"comes":  {one, []string{early, assoc, closed, node1}, [][]netip.Addr{both}, []string{closed, node1}, 2},
		"leaves": {both, []string{pods, others, alias, node1}, [][]netip.Addr{one}, []string{others, alias, node1}, 2},
		"leaves and comes back before the Cleaner reads": {both, []string{early, pods}, [][]netip.Addr{one, both}, []string{pods}, 2},
		"is the same":                  {both, []string{early, pods}, [][]netip.Addr{both}, []string{early, pods}, 0},
		"of a family without Services": {one, []string{early6}, [][]netip.Addr{append(addrs("fd02::6"), one...)}, []string{early6}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(Params{})
			r.SetNodePortAddrs(c.before)
			r.update(nil, services...)
			r.Sweep()
			r.turn(t.Context())
			for _, f := range c.flows {
				r.table.Add(flow(f))
			}
			n := len(r.count.Dumps())
			for _, m := range c.moves {
				r.SetNodePortAddrs(m)
			}
			r.turn(t.Context())
			r.left(t, c.left...)
			got := r.count.Dumps()[n:]
			if len(got) != c.dumps {
				t.Errorf("dumps %+v, want %d", got, c.dumps)
			}
			for _, f := range got {
				if want := netip.MustParseAddr("192.168.1.6"); f.OrigDst != want {
					t.Errorf("dump %+v, want flows to %v only", f, want)
				}
			}
			r.table.Add(flow(others))
			r.turn(t.Context())
			if len(r.moved) > 0 {
				t.Errorf("addresses are remembered after the pass: %v", r.moved)
			}
		})
	}
}

// TestNodePortAddressMovesWhileThePassFails: the flows end with the retry.
func TestNodePortAddressMovesWhileThePassFails(t *testing.T) {
	gone := "udp 10.1.0.9:1002 192.168.1.6:30053 10.1.0.1:5353"
	r := newRig(Params{Retry: 1}, gone)
	r.SetNodePortAddrs([]netip.Addr{netip.MustParseAddr("192.168.1.6")})
	r.update(nil, "udp :30053 10.1.0.1:5353")
	r.Sweep()
	r.turn(t.Context())
	r.left(t, gone)
	cut := &interrupter{Table: nothing{r.table}}
	r.p.Table = cut
	r.SetNodePortAddrs(nil)
	r.turn(t.Context())
	r.left(t, gone)
	r.p.Table = r.table
	r.turn(t.Context())
	r.left(t)
}

// nothing is a table whose dumps show no flow.
type nothing struct{ conntrack.Table }

func (n nothing) Flows(ctx context.Context, f conntrack.Filter, emit func(conntrack.Flow)) error {
	return n.Table.Flows(ctx, f, func(conntrack.Flow) {})
}

// TestConnectionOutlivesItsAddress: a link that is deleted and created again takes an address with it for a moment. Connections over it go on,
// also where those to an endpoint that has gone are reset.
func TestConnectionOutlivesItsAddress(t *testing.T) {
	const stream = "tcp 10.0.0.1:1007 192.168.1.6:30080 10.1.0.1:8080"
	r := newRig(Params{ResetGone: true})
	r.SetNodePortAddrs([]netip.Addr{netip.MustParseAddr("192.168.1.6")})
	r.update(nil, "tcp :30080 10.1.0.1:8080")
	r.Sweep()
	r.turn(t.Context())
	r.table.Add(flow(stream))
	r.SetNodePortAddrs(nil)
	r.turn(t.Context())
	r.left(t, stream)
}
