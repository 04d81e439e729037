package userspace

import (
	"context"
	"fmt"
	"net"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// Probe implements dataplane.Driver. It opens a socket of each family on the loopback
// address and closes it again.
func (d *Driver) Probe(ctx context.Context) (dataplane.Caps, error) {
	caps := dataplane.Caps{Notes: d.p.Notes, Unsupported: Unsupported, OwnsAddresses: d.p.Plan.Own}
	var last error
	for f, at := range map[model.Family]string{model.IPv4: "127.0.0.1:0", model.IPv6: "[::1]:0"} {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
		if err != nil {
			last = err
			continue
		}
		if err := l.Close(); err != nil {
			return caps, err
		}
		if f == model.IPv4 {
			caps.Families = append([]model.Family{f}, caps.Families...)
		} else {
			caps.Families = append(caps.Families, f)
		}
	}
	if len(caps.Families) == 0 {
		return caps, fmt.Errorf("%w: no socket can be opened on a loopback address: %w", dataplane.ErrUnsupported, last)
	}
	return caps, nil
}
