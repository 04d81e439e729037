package userspace

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/addressplan"
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/relay"
)

// Name is the value of --proxy-mode.
const Name = "userspace"

// Routes is the kernel client for the routes that make addresses local to this network namespace. See link.Locals.
type Routes interface {
	Add(netip.Addr) error
	Delete(netip.Addr) error
	List() ([]netip.Addr, error)
	Has(netip.Addr) (bool, error)
	// Watch calls changed when the watch has started, and after each deletion of a route.
	Watch(ctx context.Context, changed func()) error
}

// Ports is the kernel client for the routing rules that deliver packets to single ports of addresses that may be another host's.
// See link.Ports.
type Ports interface {
	Add(link.Port) error
	Delete(link.Server) error
	List() ([]link.Port, error)
	// Watch calls changed when the watch has started, and after each deletion of a rule.
	Watch(ctx context.Context, changed func()) error
}

// Params configure a Driver.
type Params struct {
	Relay  *relay.Relay
	Plan   addressplan.Plan
	Routes Routes // nil unless Plan.Own
	Ports  Ports  // nil unless Plan.Own
	// Returns is nil if the client's address cannot be preserved in any family. Sources are
	// the families in which it can.
	Returns Returns
	Sources []model.Family
	// Talks returns the connections of this network namespace. A route or an endpoint's rule that
	// no Service needs any more lingers while a connection needs it. If Talks is nil, it lingers for LingerBlind.
	Talks       func() ([]link.Talk, error)
	LingerBlind time.Duration
	// OnBindError is called once for a socket that cannot be opened because of its
	// address or port, until it has been opened. The agent retries every Retry.
	OnBindError func(svc model.ServiceKey, err error)
	Retry       time.Duration // 0 = 5 s
	Notes       []string      // for the operator, in Caps
	Log         *slog.Logger  // nil = discard
}

// Driver is the data plane.
type Driver struct {
	p Params

	mu       sync.Mutex // guards the state against concurrent retries of Watch and calls of the engine
	where    map[model.Family]string
	targets  map[string]*target
	sockets  map[string]*socket
	routes   map[netip.Addr]struct{}  // assumed to exist
	ports    map[link.Server]bool     // assumed to have a routing rule; true: refused
	returned map[link.Server]struct{} // endpoints whose replies are assumed to be routed here
	waits    bool                     // no socket is opened before Begin
	legacy   legacy
	toldFull bool // the lack of descriptors for sockets has been reported
	giving   bool // set by Pause, until Resume: no change is allowed
	broken   bool // an Apply failed part-way: the actual state is not the committed one
}

var _ dataplane.Driver = (*Driver)(nil)

// target is a Frontend that this process serves; value is the value of its object.
type target struct {
	*relay.Target
	value   string
	family  model.Family
	service model.ServiceKey
}

// socket is a listener, either open or pending.
type socket struct {
	id     string
	family model.Family
	at     netip.AddrPort
	proto  model.Protocol
	target *target
	open   *relay.Listener // nil: pending
	told   bool
	why    error // the last error; nil before the first attempt
}

// place returns the address, port and protocol of the socket, without the Frontend.
func (s *socket) place() string { return fmt.Sprintf("%s/%s", s.at, s.proto) }

// New returns a Driver without any object.
func New(p Params) *Driver {
	if p.OnBindError == nil {
		p.OnBindError = func(model.ServiceKey, error) {}
	}
	if p.Retry == 0 {
		p.Retry = 5 * time.Second
	}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	return &Driver{p: p, where: map[model.Family]string{}, targets: map[string]*target{}, sockets: map[string]*socket{},
		routes: map[netip.Addr]struct{}{}, ports: map[link.Server]bool{}, returned: map[link.Server]struct{}{}}
}

// Name implements dataplane.Driver.
func (d *Driver) Name() string { return Name }

// Width implements dataplane.Driver. It returns 0: there are no pools.
func (d *Driver) Width(dataplane.Key) int { return 0 }

// KeyString implements dataplane.Driver.
func (d *Driver) KeyString(k dataplane.Key) string {
	switch k.Kind {
	case kindWhere:
		return "node addresses " + k.Family.String()
	case kindRoute:
		return "local route " + k.ID
	case kindPort:
		return "routing rule for " + k.ID
	case kindReturn:
		return "rule for answers of " + k.ID
	case kindTarget:
		return "frontend " + k.ID
	case kindSocket:
		return "socket " + k.ID
	}
	return k.String()
}

// Watch implements dataplane.Driver. Other programs can change only the routes and the routing
// rules of this driver. Watch also retries to open the pending sockets.
func (d *Driver) Watch(ctx context.Context, changed func()) error {
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	lost := make(chan error, 3) // one slot for each goroutine below, so that no send blocks
	if d.p.Routes != nil {
		watching.Go(func() { lost <- d.p.Routes.Watch(ctx, changed) })
	}
	if d.p.Ports != nil {
		watching.Go(func() { lost <- d.p.Ports.Watch(ctx, changed) })
	}
	if d.p.Returns != nil {
		watching.Go(func() { lost <- d.p.Returns.Watch(ctx, changed) })
	}
	tick := time.NewTicker(d.p.Retry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-lost:
			return err
		case <-tick.C:
			d.retry()
		}
	}
}

func (d *Driver) retry() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.giving || d.waits {
		return
	}
	waiting := false
	defer func() { d.toldFull = d.toldFull && waiting }()
	for _, s := range d.sockets {
		if s.open != nil {
			continue
		}
		waiting = true
		if err := d.listen(s); err != nil {
			d.p.Log.Debug("a socket still cannot be opened", "address", s.at, "error", err)
		} else if s.open != nil {
			d.p.Log.Info("listening for a Service after a retry", "service", s.target.service, "address", s.at)
		}
	}
}

// Unopened is a pending socket: its address, its port or a descriptor is not available.
type Unopened struct {
	Service model.ServiceKey
	At      string // address, port and protocol
	Err     error  // of the last attempt; nil before the first one
}

// Unopened returns the pending sockets, in no order.
func (d *Driver) Unopened() (out []Unopened) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.sockets {
		if s.open == nil {
			out = append(out, Unopened{s.target.service, s.place(), s.why})
		}
	}
	return out
}

// Waiting returns the number of pending sockets, for example those whose port another program uses.
func (d *Driver) Waiting() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.sockets {
		if s.open == nil {
			n++
		}
	}
	return n
}

// Sockets returns the number of open sockets.
func (d *Driver) Sockets() int {
	waiting := d.Waiting()
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.sockets) - waiting
}
