package health

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// ServicePort is the state of one Service on this node that a load balancer queries.
type ServicePort struct {
	Port       uint16 // healthCheckNodePort
	LocalReady int    // distinct IPs of its ready endpoints on this node; terminating ones do not count
}

// ServiceHealthParams configures a ServiceHealth.
type ServiceHealthParams struct {
	Families []model.Family
	Healthy  func() bool // Tracker.Healthy
	// OnBindError is called once for each Service and port that cannot be bound, on Run's goroutine. The bind is retried every 5 s.
	OnBindError func(svc model.ServiceKey, port uint16, err error)
	Listen      ListenFunc // nil = net's
	Log         *slog.Logger
}

// ServiceHealth serves the healthCheckNodePorts: one HTTP server for each
// Service that has one, on each chosen address of the node. It serves nowhere before SetAddrs.
//
// The setters never block and may be called from any goroutine; sockets are
// opened and closed by Run's goroutine, so that the engine waits for none.
type ServiceHealth struct {
	p      ServiceHealthParams
	listen ListenFunc
	bell   chan struct{} // size 1: something was set

	mu    sync.RWMutex
	want  map[model.ServiceKey]ServicePort
	addrs []netip.Addr // see SetAddrs; none before it is called

	open     map[socket]*http.Server // Run's
	closers  map[socket]net.Listener // Run's
	bounds   bounds                  // of all these servers together
	reported map[claim]bool          // Run's: bind errors that were reported to OnBindError
	serving  sync.WaitGroup
}

// claim is a port that a Service desires; socket is one address of it.
type claim struct {
	svc  model.ServiceKey
	port uint16
}

type socket struct {
	claim
	addr netip.Addr
}

// NewServiceHealth returns a ServiceHealth that serves nothing yet.
func NewServiceHealth(p ServiceHealthParams) *ServiceHealth {
	return &ServiceHealth{
		p: p, listen: p.Listen.orNet(), bell: make(chan struct{}, 1),
		want: map[model.ServiceKey]ServicePort{},
		open: map[socket]*http.Server{}, closers: map[socket]net.Listener{}, reported: map[claim]bool{},
	}
}

// Set replaces the desired state: all Services that have a healthCheckNodePort.
func (h *ServiceHealth) Set(want map[model.ServiceKey]ServicePort) {
	h.mu.Lock()
	h.want = maps.Clone(want)
	h.mu.Unlock()
	h.ring()
}

// SetAddrs sets the addresses of the node to serve on, NodeView.HealthAddrs: 0.0.0.0 and
// :: are every address of their family, and an empty list is none at all.
func (h *ServiceHealth) SetAddrs(addrs []netip.Addr) {
	h.mu.Lock()
	h.addrs = addrs
	h.mu.Unlock()
	h.ring()
}

func (h *ServiceHealth) ring() {
	select {
	case h.bell <- struct{}{}:
	default:
	}
}

// Run opens and closes sockets to match the desired state until ctx ends; then it closes them all.
func (h *ServiceHealth) Run(ctx context.Context) error {
	defer h.serving.Wait()
	defer func() {
		for s := range h.open {
			h.close(s)
		}
	}()
	for {
		var retry <-chan time.Time
		if !h.reconcile(ctx) {
			retry = time.After(retryAfter)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-h.bell:
		case <-retry:
		}
	}
}

// reconcile closes sockets that are not desired, then opens the desired ones, because a port may move from one Service to another.
// It returns false if a bind failed.
func (h *ServiceHealth) reconcile(ctx context.Context) bool {
	want := h.wanted()
	claims := map[claim]bool{}
	for s := range want {
		claims[s.claim] = true
	}
	maps.DeleteFunc(h.reported, func(c claim, _ bool) bool { return !claims[c] })
	for s := range h.open {
		if !want[s] {
			h.close(s)
		}
	}
	ok := true
	for s := range want {
		if h.open[s] == nil && !h.serve(ctx, s) {
			ok = false
		}
	}
	return ok
}

func (h *ServiceHealth) wanted() map[socket]bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	want := map[socket]bool{}
	for svc, p := range h.want {
		for _, a := range h.addrs {
			// No load balancer asks at a link-local address, and IPv6 would need a zone.
			if !a.IsLinkLocalUnicast() && slices.Contains(h.p.Families, model.FamilyOf(a)) {
				want[socket{claim{svc, p.Port}, a}] = true
			}
		}
	}
	return want
}

func (h *ServiceHealth) serve(ctx context.Context, s socket) bool {
	network := "tcp4" // by family, so that 0.0.0.0 and :: are two sockets
	if s.addr.Is6() {
		network = "tcp6"
	}
	l, err := h.listen(ctx, network, netip.AddrPortFrom(s.addr, s.port).String())
	if err != nil {
		if !h.reported[s.claim] && ctx.Err() == nil {
			h.reported[s.claim] = true
			h.p.OnBindError(s.svc, s.port, err)
		}
		return false
	}
	l = h.bounds.listener(l)
	srv := newHTTPServer(h.handler(s.svc), writeLimit, h.p.Log)
	h.open[s], h.closers[s] = srv, l
	h.serving.Go(func() {
		if err := srv.Serve(l); err != http.ErrServerClosed {
			h.p.Log.Debug("service health server ended", "service", s.svc.String(), "address", l.Addr().String(), "err", err)
		}
	})
	return true
}

// close frees the port before it returns: the listener is closed here too,
// because Serve may not have taken hold of it yet.
func (h *ServiceHealth) close(s socket) {
	_ = h.open[s].Close()
	_ = h.closers[s].Close()
	delete(h.open, s)
	delete(h.closers, s)
}

// serviceAnswer is kube-proxy's JSON.
type serviceAnswer struct {
	Service             serviceName `json:"service"`
	LocalEndpoints      int         `json:"localEndpoints"`
	ServiceProxyHealthy bool        `json:"serviceProxyHealthy"`
}

type serviceName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// handler answers every path, as kube-proxy does: load balancers differ.
func (h *ServiceHealth) handler(svc model.ServiceKey) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h.mu.RLock()
		n := h.want[svc].LocalReady
		h.mu.RUnlock()
		healthy := h.p.Healthy()
		code := http.StatusServiceUnavailable
		if n > 0 && healthy {
			code = http.StatusOK
		}
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(n))
		writeJSON(w, code, serviceAnswer{serviceName{svc.Namespace, svc.Name}, n, healthy})
	})
}
