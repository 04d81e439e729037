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

// Routes make addresses local to this network namespace. See link.Locals.
type Routes interface {
	Add(netip.Addr) error
	Delete(netip.Addr) error
	List() ([]netip.Addr, error)
	Has(netip.Addr) (bool, error)
	// Watch calls changed when it has begun, and after each route that has gone.
	Watch(ctx context.Context, changed func()) error
}

// Ports deliver packets to single ports of addresses that may be another host's. See link.Ports.
type Ports interface {
	Add(link.Port) error
	Delete(link.Server) error
	List() ([]link.Port, error)
	// Watch calls changed when it has begun, and after each rule that has gone.
	Watch(ctx context.Context, changed func()) error
}

// Params configure a Driver.
type Params struct {
	Relay  *relay.Relay
	Plan   addressplan.Plan
	Routes Routes // nil unless Plan.Own
	Ports  Ports  // nil unless Plan.Own
	// Returns are nil where no client's address can be kept; Sources are the families in
	// which it can.
	Returns Returns
	Sources []model.Family
	// Talks give the connections of this network namespace. A route or an endpoint's rule that
	// no Service wants any more stays while one of them needs it; where Talks are nil, for LingerBlind.
	Talks       func() ([]link.Talk, error)
	LingerBlind time.Duration
	// OnBindError is called once for a socket that cannot be opened because of its
	// address or port, until it can. It is tried again every Retry.
	OnBindError func(svc model.ServiceKey, err error)
	Retry       time.Duration // 0 = 5 s
	Notes       []string      // for the operator, in Caps
	Log         *slog.Logger  // nil = discard
}

// Driver is the data plane.
type Driver struct {
	p Params

	mu       sync.Mutex // Watch's retries against the engine's calls
	where    map[model.Family]string
	targets  map[string]*target
	sockets  map[string]*socket
	routes   map[netip.Addr]struct{}  // that are there, as far as we know
	ports    map[link.Server]bool     // that are taken, as far as is known; true: refused
	returned map[link.Server]struct{} // whose answers are led here, as far as we know
	waits    bool                     // for Begin: no socket is opened before
	legacy   legacy
	toldFull bool // that no descriptor is left for sockets
	giving   bool // Pause: nothing may change
	broken   bool // an Apply failed half-way: what is held is not what was committed
}

var _ dataplane.Driver = (*Driver)(nil)

// target is a Frontend that is held; value is its object's.
type target struct {
	*relay.Target
	value   string
	family  model.Family
	service model.ServiceKey
}

// socket is a listener that is held, or waits for its port.
type socket struct {
	id     string
	family model.Family
	at     netip.AddrPort
	proto  model.Protocol
	target *target
	open   *relay.Listener // nil: it waits
	told   bool
	why    error // it waits
}

// place is where the socket is, whoever is asked there.
func (s *socket) place() string { return fmt.Sprintf("%s/%s", s.at, s.proto) }

// New makes a Driver that holds nothing.
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

// Width implements dataplane.Driver: there are no pools.
func (d *Driver) Width(dataplane.Key) int { return 0 }

// KeyString implements dataplane.Driver.
func (d *Driver) KeyString(k dataplane.Key) string {
	switch k.Kind {
	case kindWhere:
		return "whereabouts " + k.Family.String()
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

// Watch implements dataplane.Driver: of what is ours somebody else can write the routes
// and the rules for answers alone. Besides, it opens those sockets again that wait for their port.
func (d *Driver) Watch(ctx context.Context, changed func()) error {
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	lost := make(chan error, 3) // as many as there are below: none of them waits for a reader
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
			d.p.Log.Info("listening after all", "service", s.target.service, "address", s.at)
		}
	}
}

// Unopened is a socket that waits for its address, its port or a descriptor.
type Unopened struct {
	Service model.ServiceKey
	At      string // address, port and protocol
	Err     error  // of the last try; nil before the first one
}

// Unopened returns the sockets that wait, in no order.
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

// Waiting is how many sockets wait for a port that somebody else has.
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

// Sockets is how many sockets are open.
func (d *Driver) Sockets() int {
	waiting := d.Waiting()
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.sockets) - waiting
}
