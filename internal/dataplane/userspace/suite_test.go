package userspace

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/internal/addressplan"
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/relay"
)

func TestMain(m *testing.M) { os.Exit(netnstest.Main(m)) }

// failing makes the next Apply fail, before or after it is done.
type failing struct {
	dataplane.Driver
	fail func() (after bool, err error)
}

func (d *failing) Apply(ctx context.Context, b dataplane.Batch) (dataplane.Applied, error) {
	if d.fail == nil {
		return d.Driver.Apply(ctx, b)
	}
	after, err := d.fail()
	d.fail = nil
	if after {
		if _, err := d.Driver.Apply(ctx, b); err != nil {
			return dataplane.Applied{}, err
		}
	}
	return dataplane.Applied{}, err
}

// newDriver makes a driver whose sockets end with the test.
func newDriver(t *testing.T, p Params) *Driver {
	t.Helper()
	if p.Relay == nil {
		p.Relay = relay.New(relay.Params{Descriptors: 4096})
	}
	d := New(p)
	t.Cleanup(func() {
		if err := d.Cleanup(context.Background()); err != nil {
			t.Error(err)
		}
		p.Relay.Close()
	})
	return d
}

func TestSuiteOnLoopback(t *testing.T) {
	suite(t, func() Params { return Params{Plan: addressplan.Plan{FirstPort: 1024}} })
}

// TestSuiteOnOwnAddresses has the routes in the kernel, in the namespace of this test.
func TestSuiteOnOwnAddresses(t *testing.T) {
	suite(t, func() Params {
		routes, err := link.OpenLocals()
		if err != nil {
			t.Fatal(err)
		}
		return Params{Plan: addressplan.Plan{Own: true}, Routes: routes, Ports: ports(t), Talks: link.Talks}
	})
}

// TestSuiteOnModel needs no privilege.
func TestSuiteOnModel(t *testing.T) {
	suite(t, func() Params {
		return Params{Plan: addressplan.Plan{Own: true}, Routes: &fakeRoutes{}, Ports: &fakePorts{}}
	})
}

func suite(t *testing.T, params func() Params) {
	dataplanetest.Run(t, func(t *testing.T) *dataplanetest.Subject {
		d := &failing{Driver: newDriver(t, params())}
		s := &dataplanetest.Subject{
			Driver: d, Alone: true, Families: []model.Family{model.IPv4, model.IPv6},
			Touch:  func(testing.TB) {},
			Poison: func(model.Family) *model.Frontend { return nil }, // a port that is taken waits for it
			Lingers: func(name string) bool {
				return d.Driver.(*Driver).p.Talks != nil && (strings.HasPrefix(name, "local route ") || strings.HasPrefix(name, "routing rule for "))
			},
			FailApply: func(after bool) {
				d.fail = func() (bool, error) { return after, errors.New("out of descriptors, says the test") }
			},
		}
		if caps, err := d.Probe(t.Context()); err != nil || len(caps.Families) != 2 {
			t.Fatalf("probe: %v, %v", caps, err)
		}
		return s
	})
}

// fakeRoutes are local routes without a kernel.
type fakeRoutes struct {
	mu   sync.Mutex
	list []netip.Addr
	fail error
}

func (r *fakeRoutes) Add(a netip.Addr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.list, a) {
		r.list = append(r.list, a)
	}
	return r.fail
}

func (r *fakeRoutes) Delete(a netip.Addr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = slices.DeleteFunc(r.list, func(b netip.Addr) bool { return a == b })
	return r.fail
}

func (r *fakeRoutes) List() ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list), nil
}

func (r *fakeRoutes) Has(a netip.Addr) (bool, error) {
	list, err := r.List()
	return slices.Contains(list, a), err
}

func (r *fakeRoutes) Watch(ctx context.Context, changed func()) error {
	changed()
	<-ctx.Done()
	return nil
}
