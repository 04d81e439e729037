package netlab

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// FlushConntrack deletes every tracked flow of one host, so that a test does not meet the flows of an earlier one.
func (l *Lab) FlushConntrack(host string) error {
	h, err := l.Host(host)
	if err != nil {
		return err
	}
	if err := h.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) }); err != nil {
		return fmt.Errorf("flush conntrack in %s: %w", host, err)
	}
	return nil
}
