package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"

	"github.com/fairlead/fairlead/internal/health"
	"github.com/fairlead/fairlead/internal/model"
)

// addServers adds the two HTTP servers of kube-proxy: health on 10256, metrics
// on 10249.
func (a *agent) addServers() {
	a.serve("healthz", a.cfg.Healthz, health.HealthHandler(a.health, a.metrics))
	a.serve("metrics", a.cfg.Metrics, health.MetricsHandler(health.Mux{
		Mode: a.cfg.Mode, OnPing: a.metrics.Pinged, Metrics: a.metrics.Handler(), SLIs: a.metrics.SLIHandler(), Configz: a.cfg.Configz, Pages: a.inspection.pages(),
		Profiling: a.cfg.Profiling, SetVerbosity: func(v int) error { a.log.setVerbosity(v); return nil },
	}))
}

func (a *agent) serve(name string, addr netip.AddrPort, h http.Handler) {
	if !addr.IsValid() {
		return
	}
	s := health.NewServer(health.ServerParams{Name: name, Addr: addr, Handler: h, HardFail: a.cfg.BindAddressHardFail,
		Profiles: name == "metrics" && a.cfg.Profiling, Log: a.log.Logger,
		Listening: func(err error) { a.memory.listening(name, err) },
		Listen: func(ctx context.Context, network, at string) (net.Listener, error) {
			l, err := a.listen(ctx, network, at)
			if errors.Is(err, syscall.EADDRINUSE) {
				if holder := portHolder("/proc", addr.Port()); holder != "" {
					err = fmt.Errorf("%w: %s listens there", err, holder)
				}
			}
			return l, err
		}})
	a.addLate(name+" server", func(ctx context.Context) error { return s.Run(ctx) })
}

// listen opens a listening socket, or returns the one that the predecessor has handed over
// if there is one.
func (a *agent) listen(ctx context.Context, network, addr string) (net.Listener, error) {
	return a.shelf.Listen(ctx, net.ListenConfig{}, network, addr)
}

// onHealthPortError reports a healthCheckNodePort that cannot be bound, as
// kube-proxy does, by an Event on the Service.
func (a *agent) onHealthPortError(svc model.ServiceKey, port uint16, err error) {
	a.log.Warn("cannot serve the health check node port", "service", svc, "port", port, "error", err)
	if a.recorder != nil {
		a.recorder.Warn(svc, "FailedToStartServiceHealthcheck", err.Error())
	}
}
