package localhost

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// retryAfter is the backoff after a failed bind: the program that holds the port may
// release it.
const retryAfter = 5 * time.Second

// Params configure Listeners. The functions are called on goroutines of the package and
// may be nil.
type Params struct {
	Addr netip.Addr // ::1
	// OnBindError is called once for a port that cannot be bound, and again only after
	// the port has been bound in between.
	OnBindError func(svc model.ServiceKey, port uint16, err error)
	OnListening func(listeners int)
	// OnRejected is called for a connection, or the first datagram of a client, that
	// no endpoint takes or that the source ranges keep out.
	OnRejected func(model.Protocol)
	Log        *slog.Logger
}

// Listeners are the sockets of all NodePorts at one loopback address. Its methods
// never wait and may be called from any goroutine.
type Listeners struct {
	p    Params
	bell chan struct{} // size 1: the desired state has changed

	mu      sync.Mutex
	want    map[model.FrontendKey]model.Frontend
	enabled bool

	open     map[model.FrontendKey]*socket // owned by Run
	reported map[model.FrontendKey]bool    // owned by Run: bind errors that were reported
	work     sync.WaitGroup
}

// socket is an open listener; its connections outlive it, as those through the
// kernel outlive their rule.
type socket struct {
	io.Closer
	to *target
}

// New makes Listeners that listen nowhere yet.
func New(p Params) *Listeners {
	if p.OnBindError == nil {
		p.OnBindError = func(model.ServiceKey, uint16, error) {}
	}
	if p.OnListening == nil {
		p.OnListening = func(int) {}
	}
	if p.OnRejected == nil {
		p.OnRejected = func(model.Protocol) {}
	}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	return &Listeners{p: p, bell: make(chan struct{}, 1), want: map[model.FrontendKey]model.Frontend{},
		open: map[model.FrontendKey]*socket{}, reported: map[model.FrontendKey]bool{}}
}

// Update takes in a commit: the Frontends decided, and the keys that no longer
// belong to the Service that had them. A key that is in both has a new owner.
func (l *Listeners) Update(decided []model.Frontend, gone []model.FrontendKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := false
	for _, k := range gone {
		if _, had := l.want[k]; had {
			delete(l.want, k)
			changed = true
		}
	}
	for i := range decided {
		if f := &decided[i]; l.concerns(f) {
			f := *f
			f.Backends = slices.Clone(f.Backends)
			l.want[f.Key] = f
			changed = true
		}
	}
	if changed {
		l.ring()
	}
}

func (l *Listeners) concerns(f *model.Frontend) bool {
	return f.Kind == model.NodePort && f.Key.Family == model.FamilyOf(l.p.Addr) && f.Key.Protocol != model.SCTP
}

// Enable sets whether to listen at all (NodeView.ListenLocalhost).
func (l *Listeners) Enable(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enabled = on
	l.ring()
}

func (l *Listeners) ring() {
	select {
	case l.bell <- struct{}{}:
	default:
	}
}

// Run opens and closes sockets to match the desired state until ctx ends; then it closes
// them and all their connections.
func (l *Listeners) Run(ctx context.Context) error {
	defer l.work.Wait()
	defer func() {
		for k := range l.open {
			l.close(k)
		}
	}()
	for {
		var retry <-chan time.Time
		if !l.reconcile(ctx) {
			retry = time.After(retryAfter)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.bell:
		case <-retry:
		}
	}
}

// reconcile makes the open sockets match the desired ones. It returns false if a bind failed.
func (l *Listeners) reconcile(ctx context.Context) bool {
	want, before := l.wanted(), len(l.open)
	for k := range l.open {
		if _, wanted := want[k]; !wanted {
			l.close(k)
		}
	}
	for k := range l.reported {
		if _, wanted := want[k]; !wanted {
			delete(l.reported, k)
		}
	}
	ok := true
	for k, f := range want {
		if s := l.open[k]; s != nil {
			s.to.set(f)
		} else if err := l.listen(ctx, f); err != nil {
			ok = false
			if !l.reported[k] {
				l.reported[k] = true
				l.p.Log.Warn("cannot listen for a NodePort on the loopback address; trying again", "service", f.Service, "error", err)
				l.p.OnBindError(f.Service, k.Port, err)
			}
		} else {
			delete(l.reported, k)
		}
	}
	if len(l.open) != before || before == 0 {
		l.p.OnListening(len(l.open))
	}
	return ok
}

// wanted returns the desired listeners: the NodePorts that have endpoints. Without endpoints
// there is no listener, so that the kernel refuses at once.
func (l *Listeners) wanted() map[model.FrontendKey]model.Frontend {
	out := map[model.FrontendKey]model.Frontend{}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.enabled {
		return out
	}
	for k, f := range l.want {
		if f.Verdict == model.Forward && len(f.Backends) > 0 {
			out[k] = f
		}
	}
	return out
}

func (l *Listeners) listen(ctx context.Context, f model.Frontend) error {
	at, to := netip.AddrPortFrom(l.p.Addr, f.Key.Port), newTarget(f)
	open := l.listenTCP
	if f.Key.Protocol == model.UDP {
		open = l.listenUDP
	}
	c, err := open(ctx, at, to)
	if err != nil {
		return fmt.Errorf("listen on %s/%s: %w", at, f.Key.Protocol, err)
	}
	l.open[f.Key] = &socket{c, to}
	return nil
}

func (l *Listeners) close(k model.FrontendKey) {
	if err := l.open[k].Close(); err != nil {
		l.p.Log.Debug("cannot close a listener", "key", k, "error", err)
	}
	delete(l.open, k)
}
