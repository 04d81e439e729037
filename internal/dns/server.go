package dns

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// Server answers DNS queries. Make it with New, then call Run once.
type Server struct {
	cfg     Config
	zone    *zone
	metrics *Metrics
	clients *clients
	forward *forwarder
	cluster *forwarder // for cluster names that the Store does not know yet, or that are stale
	parking *parking
	guard   *guard
	ready   chan struct{}

	stale        atomic.Bool
	domain       atomic.Pointer[domainCheck]
	toldStranger sync.Once
}

// New checks the configuration; it opens nothing.
func New(c Config) (*Server, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	s := &Server{cfg: c, zone: newZone(&c), metrics: c.Metrics, clients: newClients(&c), ready: make(chan struct{})}
	s.guard = &guard{server: s, told: map[string]struct{}{}}
	s.forward, s.cluster = newForwarder(c.Upstreams, &c), newForwarder(nil, &c)
	s.forward.guard, s.cluster.guard, s.forward.healthy = s.guard, s.guard, c.Metrics.healthy
	s.parking = newParking(parkingConfig{metrics: c.Metrics, now: c.Now, retry: s.retry})
	return s, nil
}

// Ready is closed when every address is being served.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// retryBind is how long between attempts to listen: the address may be added,
// or a predecessor may end, later.
const retryBind = time.Second

// Run serves until ctx ends. It waits for addresses that cannot be bound, and
// logs each reason once.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	socks := s.open(ctx)
	if socks == nil {
		return nil
	}
	defer socks.close()
	s.metrics.serving.Set(1)
	defer s.metrics.serving.Set(0)
	s.cfg.Store.notify(s.parking.changed)
	s.refreshUpstreams()
	wg.Go(func() { s.parking.run(ctx) })
	wg.Go(func() { s.lookAround(ctx) })
	wg.Go(func() { s.checkDomain(ctx) })
	wg.Go(func() { s.forward.watch(ctx) })
	wg.Go(func() { s.cluster.watch(ctx) })
	var readers sync.WaitGroup
	for _, u := range socks.udp {
		readers.Go(func() { s.serveUDP(ctx, u) })
	}
	conns := newConnLimit(s.metrics)
	for _, l := range socks.tcp {
		wg.Go(func() { s.serveTCP(ctx, l, conns) })
	}
	close(s.ready)
	<-ctx.Done()
	for _, u := range socks.udp { // a question that has been read is answered
		_ = u.SetReadDeadline(time.Now())
	}
	readers.Wait()
	socks.close()
	conns.closeAll()
	s.forward.asking.Wait()
	s.cluster.asking.Wait()
	return nil
}

// asker is the source of a query, to which its answer is sent.
type asker struct {
	addr        netip.AddrPort
	udp         *net.UDPConn // or
	tcp         *tcpConn
	intercepted bool // came by way of package intercept
}

// client returns the address that is counted and compared.
func (a *asker) client() netip.Addr { return a.addr.Addr().Unmap().WithZone("") }

// write sends one packed message. An error is ignored: there is no caller that could handle it.
func (a *asker) write(b []byte) {
	if a.udp != nil {
		_, _ = a.udp.WriteToUDPAddrPort(b, a.addr)
		return
	}
	a.tcp.write(b)
}

// unanswered releases a query that gets no answer because another one is answered in its place.
func (a *asker) unanswered() {
	if a.tcp != nil {
		a.tcp.release()
	}
}

func lower(name string) string { return strings.ToLower(name) }

// limit returns the length of the longest message that the asker takes, in bytes.
func (a *asker) limit(req *dns.Msg) int {
	if a.tcp != nil {
		return dns.MaxMsgSize
	}
	size := dns.MinMsgSize
	if opt := req.IsEdns0(); opt != nil {
		size = max(size, int(opt.UDPSize()))
	}
	return min(size, maxUDPAnswer)
}

// maxUDPAnswer avoids fragments (DNS flag day 2020).
const maxUDPAnswer = 1232
