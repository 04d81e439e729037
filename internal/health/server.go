package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// retryAfter is how long a listener that could not bind waits, as in kube-proxy.
const retryAfter = 5 * time.Second

// ServerParams configures a Server.
type ServerParams struct {
	Name     string         // "healthz", for errors and logs
	Addr     netip.AddrPort // invalid = off
	Handler  http.Handler
	HardFail bool       // Run returns an error if the address cannot be bound
	Profiles bool       // answers may take as long as a profile does
	Listen   ListenFunc // nil = net's
	// Listening is called with the error of each attempt to listen, and with nil once the
	// server listens. It may be nil.
	Listening func(error)
	Log       *slog.Logger
}

// ListenFunc opens a socket, as net.Listen does.
type ListenFunc func(ctx context.Context, network, addr string) (net.Listener, error)

func (f ListenFunc) orNet() ListenFunc {
	if f == nil {
		return new(net.ListenConfig).Listen
	}
	return f
}

// Server serves HTTP on one address.
type Server struct {
	p      ServerParams
	listen ListenFunc
}

// NewServer returns a Server.
func NewServer(p ServerParams) *Server {
	if p.Listening == nil {
		p.Listening = func(error) {}
	}
	return &Server{p: p, listen: p.Listen.orNet()}
}

// Run serves until ctx ends and then returns nil. If an address cannot be bound, Run
// retries every 5 s, or returns an error if HardFail.
func (s *Server) Run(ctx context.Context) error {
	if !s.p.Addr.IsValid() {
		<-ctx.Done()
		return nil
	}
	for {
		err := s.serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if s.p.HardFail {
			return err
		}
		s.p.Log.Error("server failed; trying again", "server", s.p.Name, "after", retryAfter, "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryAfter):
		}
	}
}

func (s *Server) serve(ctx context.Context) error {
	// Network "tcp" with 0.0.0.0 binds both families where there is IPv6, as
	// kube-proxy's listener does.
	l, err := s.listen(ctx, "tcp", s.p.Addr.String())
	if err != nil {
		err = fmt.Errorf("listen for %s on %s: %w", s.p.Name, s.p.Addr, err)
		s.p.Listening(err)
		return err
	}
	s.p.Listening(nil)
	s.p.Log.Debug("server listens", "server", s.p.Name, "address", l.Addr().String())
	write := writeLimit
	if s.p.Profiles {
		write = profileLimit
	}
	return serveHTTP(ctx, new(bounds).listener(l), newHTTPServer(s.p.Handler, write, s.p.Log))
}

// serveHTTP serves on l until ctx ends; then requests have a second to finish.
func serveHTTP(ctx context.Context, l net.Listener, srv *http.Server) error {
	done := make(chan error, 1) // size 1: Serve may end when no goroutine receives
	go func() { done <- srv.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		_ = srv.Close()
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
