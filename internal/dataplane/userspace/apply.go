package userspace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/relay"
)

// Apply implements dataplane.Driver. It deletes first, because a port that moves from one
// Service to another must be free. An error, whose only cause is a lack of descriptors or
// memory, leaves the batch partly applied, and Changed then returns true.
func (d *Driver) Apply(_ context.Context, b dataplane.Batch) (dataplane.Applied, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.giving {
		return dataplane.Applied{}, errHandingOver
	}
	ops := append(d.leftOver(b), b.Ops...)
	slices.SortStableFunc(ops, func(x, y dataplane.Op) int { return cmp.Compare(turn(&x), turn(&y)) })
	for i := range ops {
		if err := d.do(&ops[i]); err != nil {
			d.broken = true
			return dataplane.Applied{}, err
		}
	}
	return dataplane.Applied{Operations: len(ops)}, nil
}

// turn returns the sort key of an operation: deletions from the last kind to the first, then
// the others from the first to the last.
func turn(op *dataplane.Op) int {
	if op.Want == "" {
		return -int(op.Key.Kind)
	}
	return int(op.Key.Kind)
}

// leftOver returns the deletions that a rebuild of families implies.
func (d *Driver) leftOver(b dataplane.Batch) (out []dataplane.Op) {
	if len(b.Rebuild) == 0 {
		return nil
	}
	wanted := map[dataplane.Key]bool{}
	for i := range b.Ops {
		wanted[b.Ops[i].Key] = true
	}
	d.held(func(k dataplane.Key, value string) {
		if slices.Contains(b.Rebuild, k.Family) && !wanted[k] {
			out = append(out, dataplane.Op{Key: k, Have: value})
		}
	})
	return out
}

func (d *Driver) do(op *dataplane.Op) error {
	switch op.Key.Kind {
	case kindWhere:
		return d.setWhere(op)
	case kindRoute:
		return d.setRoute(op)
	case kindPort:
		return d.setPort(op)
	case kindReturn:
		return d.setReturn(op)
	case kindTarget:
		return d.setTarget(op)
	case kindSocket:
		return d.setSocket(op)
	}
	return fmt.Errorf("apply %s: unknown kind", op.Key)
}

func (d *Driver) setWhere(op *dataplane.Op) error {
	if op.Want == "" {
		delete(d.where, op.Key.Family)
	} else {
		d.where[op.Key.Family] = op.Want
	}
	var all relay.Whereabouts
	for _, text := range d.where {
		var w relay.Whereabouts
		if err := json.Unmarshal([]byte(text), &w); err != nil {
			return fmt.Errorf("read the node addresses: %w", err)
		}
		all.Pods, all.Node = append(all.Pods, w.Pods...), append(all.Node, w.Node...)
	}
	d.p.Relay.SetWhereabouts(all)
	for _, t := range d.targets {
		t.Refilter()
	}
	return nil
}

func (d *Driver) setRoute(op *dataplane.Op) error {
	a, err := netip.ParseAddr(op.Key.ID)
	switch {
	case err != nil:
		return fmt.Errorf("read a route: %w", err)
	case d.p.Routes == nil: // left by an agent whose mode owned addresses
		return nil
	case op.Want == "":
		delete(d.routes, a)
		return d.p.Routes.Delete(a)
	}
	d.routes[a] = struct{}{}
	return d.p.Routes.Add(a)
}

func (d *Driver) setTarget(op *dataplane.Op) error {
	t := d.targets[op.Key.ID]
	if op.Want == "" {
		if t != nil {
			t.Remove()
			delete(d.targets, op.Key.ID)
		}
		return nil
	}
	var f model.Frontend
	if err := json.Unmarshal([]byte(op.Want), &f); err != nil {
		return fmt.Errorf("read frontend %s: %w", op.Key.ID, err)
	}
	if t == nil {
		t = &target{Target: d.p.Relay.Target(f), family: op.Key.Family}
		d.targets[op.Key.ID] = t
	} else {
		t.Set(f)
	}
	t.value, t.service = op.Want, f.Service
	return nil
}

func (d *Driver) setSocket(op *dataplane.Op) error {
	s := d.sockets[op.Key.ID]
	if op.Want == "" {
		if s != nil && s.open != nil {
			_ = s.open.Close() // the socket is closed even if Close returns an error
		}
		delete(d.sockets, op.Key.ID)
		return nil
	}
	if s != nil {
		return nil
	}
	s, err := d.newSocket(op.Key)
	if err != nil {
		return err
	}
	if err := d.listen(s); err != nil {
		return err
	}
	d.sockets[op.Key.ID] = s
	return nil
}

func (d *Driver) newSocket(k dataplane.Key) (*socket, error) {
	place, id, _ := strings.Cut(k.ID, " ")
	at, protocol, _ := strings.Cut(place, "/")
	s := &socket{id: k.ID, family: k.Family, target: d.targets[id]}
	var err error
	var ok bool
	if s.at, err = netip.ParseAddrPort(at); err != nil {
		return nil, fmt.Errorf("read socket %s: %w", k.ID, err)
	}
	if s.proto, ok = model.ParseProtocol(protocol); !ok || s.target == nil {
		return nil, fmt.Errorf("open socket %s: its frontend does not exist", k.ID)
	}
	return s, nil
}

// listen opens a socket. If another program has the port, or the address is not local, it
// reports that once and the socket stays pending. It returns any other error, for the caller to retry.
func (d *Driver) listen(s *socket) error { return d.listenAgain(s, relay.Heritage{}) }

func (d *Driver) listenAgain(s *socket, h relay.Heritage) error {
	if d.waits {
		return nil
	}
	l, err := d.p.Relay.ListenAgain(s.target.Target, s.at, s.proto, h)
	s.why = err
	switch {
	case err == nil:
		s.open, s.told = l, false
		return nil
	case errors.Is(err, relay.ErrFull): // reported once for all sockets: there may be thousands
		if !d.toldFull {
			d.toldFull = true
			d.p.Log.Warn("cannot listen for some Services; trying again; fairlead_userspace_sockets_waiting counts them", "service", s.target.service, "error", err)
			d.p.OnBindError(s.target.service, err)
		}
		return nil
	case errors.Is(err, unix.EADDRINUSE), errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.EACCES):
		if !s.told {
			s.told = true
			d.p.Log.Warn("cannot listen for a Service; trying again", "service", s.target.service, "error", err)
			d.p.OnBindError(s.target.service, err)
		}
		return nil
	}
	return fmt.Errorf("listen for Service %s: %w", s.target.service, err)
}
