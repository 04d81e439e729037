package conntrack

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
)

// rtp is a range of ports at 10.96.0.1, with endpoints.
func rtp(first, last uint16, endpoints ...string) model.Frontend {
	f := model.Frontend{Verdict: model.Reject, Key: model.FrontendKey{Family: model.IPv4, Protocol: model.UDP,
		Addr: netip.MustParseAddr("10.96.0.1"), Port: first, LastPort: last}}
	for _, a := range endpoints {
		f.Verdict = model.Forward
		f.Backends = append(f.Backends, model.Backend{Addr: netip.MustParseAddr(a), Weight: 1})
	}
	return f
}

// In a range a flow goes to the port it asked for, at an address that serves.
func TestRangesOfPorts(t *testing.T) {
	const (
		low    = "udp 10.0.0.1:1001 10.96.0.1:5000 10.1.0.1:5000"
		high   = "udp 10.0.0.1:1002 10.96.0.1:5099 10.1.0.2:5099"
		single = "udp 10.0.0.1:1003 10.96.0.1:5050 10.1.0.9:53" // another Service's, inside
		beyond = "udp 10.0.0.1:1004 10.96.0.1:5100 10.1.0.1:5100"
		early  = "udp 10.0.0.1:1005 10.96.0.1:5001 10.96.0.1:5001" // from before the endpoints
	)
	both := rtp(5000, 5099, "10.1.0.1", "10.1.0.2")
	for _, c := range []struct {
		name   string
		before model.Frontend
		gone   []model.FrontendKey
		now    []model.Frontend
		left   []string
	}{
		{"an endpoint goes", both, nil, []model.Frontend{rtp(5000, 5099, "10.1.0.2")}, []string{high, single, beyond, early}},
		{"the last endpoint goes", both, nil, []model.Frontend{rtp(5000, 5099)}, []string{single, beyond}},
		{"the first comes", rtp(5000, 5099), nil, []model.Frontend{both}, []string{low, high, single, beyond}},
		{"the range goes", both, []model.FrontendKey{both.Key}, nil, []string{single, beyond, early}},
		{"the range shrinks", both, []model.FrontendKey{both.Key}, []model.Frontend{rtp(5000, 5050, "10.1.0.1", "10.1.0.2")}, []string{low, single, beyond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inside := frontend("udp 10.96.0.1:5050 10.1.0.9:53")
			r := newRig(Params{})
			r.Update([]model.Frontend{c.before, inside}, nil)
			r.Sweep()
			r.turn(t.Context())
			for _, f := range []string{low, high, single, beyond, early} {
				r.table.Add(flow(f))
			}
			r.Update(c.now, c.gone)
			r.turn(t.Context())
			r.left(t, c.left...)
			if len(c.now) == 0 && len(r.ranges) > 0 {
				t.Errorf("ranges that have gone are remembered: %v", r.ranges)
			}
		})
	}
}
