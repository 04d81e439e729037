package userspace

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/model"
)

// Returns is the kernel client for the routing rules that deliver to this network namespace the
// replies that endpoints address to the clients. They are required to preserve a client's
// address towards the endpoint. See link.Returns.
type Returns interface {
	Add(link.Server) error
	Delete(link.Server) error
	List() ([]link.Server, error)
	// Watch calls changed when the watch has started, and after each deletion of a rule.
	Watch(ctx context.Context, changed func()) error
}

// returns emits an object for each endpoint of a Frontend with Relay.KeepSource, which preserves the client's address.
func (d *Driver) returns(f *model.Frontend, emit func(dataplane.Object)) {
	if d.p.Returns == nil || !f.Relay.KeepSource || !slices.Contains(d.p.Sources, f.Key.Family) {
		return
	}
	seen := map[netip.AddrPort]bool{}
	for _, list := range [][]model.Backend{f.Backends, f.LocalBackends} {
		for i := range list {
			if at := list[i].AddrPort(); !seen[at] {
				seen[at] = true
				emit(dataplane.Object{Key: dataplane.Key{Kind: kindReturn, Family: f.Key.Family, ID: fmt.Sprintf("%s/%s", at, f.Key.Protocol)}, Value: present})
			}
		}
	}
}

func (d *Driver) setReturn(op *dataplane.Op) error {
	s, err := server(op.Key.ID)
	switch {
	case err != nil:
		return fmt.Errorf("read a rule for answers: %w", err)
	case d.p.Returns == nil: // left by an agent that could preserve the client's address
		return nil
	case op.Want == "":
		delete(d.returned, s)
		return d.p.Returns.Delete(s)
	}
	d.returned[s] = struct{}{}
	return d.p.Returns.Add(s)
}

// setPort adds or removes the routing rule of one port of an address.
func (d *Driver) setPort(op *dataplane.Op) error {
	s, err := server(op.Key.ID)
	switch {
	case err != nil:
		return fmt.Errorf("read a routing rule: %w", err)
	case d.p.Ports == nil: // left by an agent with addresses of its own
		return nil
	case op.Want == "":
		delete(d.ports, s)
		return d.p.Ports.Delete(s)
	}
	d.ports[s] = op.Want == refused
	return d.p.Ports.Add(link.Port{Server: s, Refuse: op.Want == refused})
}

// refused is the value of a port whose rule rejects connections.
const refused = "refused"

func valueOfPort(refuse bool) string {
	if refuse {
		return refused
	}
	return present
}

func portKey(s link.Server) dataplane.Key {
	k := returnKey(s)
	k.Kind = kindPort
	return k
}

// portsGone reports whether the routing rule of a port has been deleted.
func (d *Driver) portsGone() (bool, error) {
	if len(d.ports) == 0 || d.p.Ports == nil {
		return false, nil
	}
	list, err := d.p.Ports.List()
	for s, refuse := range d.ports {
		if err == nil && !slices.Contains(list, link.Port{Server: s, Refuse: refuse}) {
			return true, nil
		}
	}
	return false, err
}

func server(id string) (s link.Server, err error) {
	at, protocol, _ := strings.Cut(id, "/")
	s.At, err = netip.ParseAddrPort(at)
	s.Protocol = unix.IPPROTO_TCP
	if protocol == model.UDP.String() {
		s.Protocol = unix.IPPROTO_UDP
	}
	return s, err
}

func returnKey(s link.Server) dataplane.Key {
	protocol := model.TCP
	if s.Protocol == unix.IPPROTO_UDP {
		protocol = model.UDP
	}
	return dataplane.Key{Kind: kindReturn, Family: model.FamilyOf(s.At.Addr()), ID: fmt.Sprintf("%s/%s", s.At, protocol)}
}

// returnsGone reports whether a rule for replies has been deleted.
func (d *Driver) returnsGone() (bool, error) {
	if len(d.returned) == 0 || d.p.Returns == nil {
		return false, nil
	}
	list, err := d.p.Returns.List()
	for s := range d.returned {
		if err == nil && !slices.Contains(list, s) {
			return true, nil
		}
	}
	return false, err
}
