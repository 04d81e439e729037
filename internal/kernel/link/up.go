package link

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// Link is a network device that is up.
type Link struct {
	Name  string
	Index int // unique: a later device of the same name has another
	MTU   int // bytes
}

// Up returns the links that are up in the network namespace of the calling thread, sorted by name.
func Up() ([]Link, error) {
	list, err := netlink.LinkList()
	return upOf(list, err)
}

// Up is the function Up in the namespace of the Conn.
func (c *Conn) Up() ([]Link, error) {
	list, err := c.handle.LinkList()
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		c.ring() // the list changed during the dump: read again
	}
	return upOf(list, err)
}

func upOf(list []netlink.Link, err error) ([]Link, error) {
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var out []Link
	for _, l := range list {
		if a := l.Attrs(); a.Flags&net.FlagUp != 0 {
			out = append(out, Link{Name: a.Name, Index: a.Index, MTU: a.MTU})
		}
	}
	slices.SortFunc(out, func(a, b Link) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
