package userspace

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/internal/addressplan"
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/relay"
)

// apply has a driver hold a Service on each port, or let go of it.
func apply(t *testing.T, d *Driver, want bool, ports ...uint16) {
	t.Helper()
	view := &model.NodeView{}
	var b dataplane.Batch
	for _, port := range ports {
		f := &model.Frontend{Service: model.ServiceKey{Namespace: "test", Name: fmt.Sprint("web-", port)}, Kind: model.ClusterIP, Verdict: model.Forward,
			Backends: []model.Backend{{Addr: netip.MustParseAddr("127.0.0.1"), Port: 9, Weight: 1}}}
		f.Key = model.FrontendKey{Family: model.IPv4, Addr: netip.MustParseAddr("127.0.5.1"), Port: port, Protocol: model.TCP}
		d.Render(f, view, func(o dataplane.Object) {
			op := dataplane.Op{Key: o.Key, Want: o.Value}
			if !want {
				op.Want, op.Have = "", o.Value
			}
			b.Ops = append(b.Ops, op)
		})
	}
	if _, err := d.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// sockets checks how many are open and how many wait.
func sockets(t *testing.T, d *Driver, open, waiting int) {
	t.Helper()
	if d.Sockets() != open || d.Waiting() != waiting {
		t.Errorf("%d sockets are open and %d wait, want %d and %d", d.Sockets(), d.Waiting(), open, waiting)
	}
}

// With more sockets than the process may open files, those that find room are open, the
// others wait and are told of once, connections have their part, and whoever waits is
// opened when there is room.
func TestMoreSocketsThanDescriptors(t *testing.T) {
	var told []error
	d := newDriver(t, Params{Relay: relay.New(relay.Params{Descriptors: 16}), Plan: addressplan.Plan{Own: true}, Routes: &fakeRoutes{},
		OnBindError: func(_ model.ServiceKey, err error) { told = append(told, err) }})
	var ports []uint16
	for p := range uint16(20) {
		ports = append(ports, 8000+p)
	}
	apply(t, d, true, ports...)
	sockets(t, d, 12, 8)
	if len(told) != 1 {
		t.Errorf("told %d times: %v", len(told), told)
	}
	d.retry()
	sockets(t, d, 12, 8)
	apply(t, d, false, ports[:10]...)
	d.retry()
	sockets(t, d, 10, 0)
	d.retry() // none waits any more: the next lack of room is said again
	apply(t, d, true, ports[:10]...)
	if len(told) != 2 {
		t.Errorf("told %d times: %v", len(told), told)
	}
}

// A port that another program has waits, is told of once, and is opened when that
// program has gone; the others are served meanwhile.
func TestPortOfAnother(t *testing.T) {
	var told []error
	d := newDriver(t, Params{Plan: addressplan.Plan{Own: true}, Routes: &fakeRoutes{},
		OnBindError: func(_ model.ServiceKey, err error) { told = append(told, err) }})
	other, err := net.Listen("tcp", "127.0.5.1:8001")
	if err != nil {
		t.Fatal(err)
	}
	apply(t, d, true, 8000, 8001, 8002)
	d.retry()
	sockets(t, d, 2, 1)
	if len(told) != 1 {
		t.Errorf("told %d times: %v", len(told), told)
	}
	if list := d.Unopened(); len(list) != 1 || list[0].At != "127.0.5.1:8001/TCP" || !errors.Is(list[0].Err, syscall.EADDRINUSE) {
		t.Errorf("unopened: %+v", list)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	d.retry()
	sockets(t, d, 3, 0)
	c, err := net.Dial("tcp", "127.0.5.1:8001")
	if errors.Is(err, syscall.ECONNREFUSED) { // the endpoint's refusal is a reset
		t.Fatal(err)
	}
	if err == nil {
		_ = c.Close()
	}
}
