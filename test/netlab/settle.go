package netlab

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/test/patience"
)

// settle waits until every link carries packets in both families. A bridge port starts to forward only after the kernel's link watch has run, and a
// neighbour solicitation that was lost before is repeated only after a second. A test would then see a timeout that it did not cause.
func (l *Lab) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(10*time.Second))
	defer cancel()
	for _, name := range l.names {
		h := l.hosts[name]
		targets := []*Host{l.hosts["node-a"], l.hosts["node-b"]}
		if h.Node != "" {
			targets = []*Host{l.hosts[h.Node]}
		}
		for _, to := range targets {
			for _, ip := range to.Addrs.each() {
				if err := h.reach(ctx, netip.AddrPortFrom(ip, canaryPorts[0])); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (h *Host) reach(ctx context.Context, to netip.AddrPort) error {
	for {
		once, cancel := context.WithTimeout(ctx, patience.Of(100*time.Millisecond))
		r := h.Ask(once, UDP, to)
		cancel()
		if r.Outcome == Answered {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s does not reach %s: %w", h.Name, to, r.Err)
		}
	}
}
