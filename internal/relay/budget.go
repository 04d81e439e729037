package relay

import (
	"errors"
	"sync"

	"github.com/fairlead/fairlead/internal/model"
)

// ErrFull is returned for a socket that is not opened because no descriptor is left.
var ErrFull = errors.New("no free file descriptor: this process may open too few (ulimit -n)")

// Errors for a connection that is rejected.
var (
	errServiceFull = errors.New("the Service has reached its connection limit")
	errFull        = errors.New("this process has no free file descriptor for connections")
	errPorts       = errors.New("this network namespace has no free port for UDP clients (net.ipv4.ip_local_port_range)")
)

// budget shares out the file descriptors; a second budget shares out the ports of UDP clients. A Service may hold as many as
// are still free: one busy Service alone gets half of all, two get a third each, and a
// Service that comes later always finds some. No Service is named in advance and nothing is
// reserved for an idle one.
type budget struct {
	mu   sync.Mutex
	none error // returned when none is free
	free int
	most int // of one Service; 0: no further bound
	held map[model.ServiceKey]int

	listeners, mostListeners int
}

// take takes n of them for a Service, whose own limit is own; 0: no limit.
func (b *budget) take(svc model.ServiceKey, n, own int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := b.held[svc]
	switch {
	case b.free < n:
		return b.none
	case held+n > b.free, b.most > 0 && held+n > b.most, own > 0 && held+n > own:
		return errServiceFull
	}
	b.free -= n
	b.held[svc] = held + n
	return nil
}

// give releases n of them.
func (b *budget) give(svc model.ServiceKey, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	if b.held[svc] -= n; b.held[svc] <= 0 {
		delete(b.held, svc)
	}
}

// listen takes a descriptor for a socket that listens, and unlisten releases it. Listeners
// have three quarters of all at most: the rest is for connections.
func (b *budget) listen() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listeners >= b.mostListeners || b.free < 1 {
		return ErrFull
	}
	b.listeners++
	b.free--
	return nil
}

func (b *budget) unlisten() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listeners--
	b.free++
}
