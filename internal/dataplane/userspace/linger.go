package userspace

import (
	"context"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// whileUsed is for ever: Drained ends it.
const whileUsed = 10 * 365 * 24 * time.Hour

var _ dataplane.Drainer = (*Driver)(nil)

// Linger implements dataplane.Driver. Without the route to a Service's address the
// connections of a Service that is gone would neither go on nor be reset, but hang.
func (d *Driver) Linger(k dataplane.Key) time.Duration {
	switch {
	case k.Kind == kindReturn:
		return d.p.ReturnLinger
	case k.Kind == kindRoute && d.used(k):
		return whileUsed
	}
	return 0
}

// Drained implements dataplane.Drainer: a route without connections is done with.
func (d *Driver) Drained(_ context.Context, lingering []dataplane.Key) (out []dataplane.Key, err error) {
	for _, k := range lingering {
		if k.Kind == kindRoute && !d.used(k) {
			out = append(out, k)
		}
	}
	return out, nil
}

func (d *Driver) used(k dataplane.Key) bool {
	a, err := netip.ParseAddr(k.ID)
	return err == nil && d.p.Relay.Used(a)
}
