package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

// Server answers DNS queries. Make it with New, then call Run once.
type Server struct {
	cfg     Config
	zone    *zone
	metrics *Metrics
	forward *forwarder
	cluster *forwarder // for cluster names before the Store is synced
	lot     *lot
	ready   chan struct{}
}

// New checks the configuration; it opens nothing.
func New(c Config) (*Server, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	s := &Server{cfg: c, zone: newZone(&c), metrics: c.Metrics, ready: make(chan struct{})}
	s.forward = newForwarder(c.Upstreams, &c)
	s.cluster = newForwarder(c.Cluster, &c)
	s.lot = newLot(lotConfig{metrics: c.Metrics, now: c.Now, again: s.again})
	return s, nil
}

// Ready is closed when every address is being served.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// retryBind is how long between attempts to listen: the address may be added,
// or a predecessor may end, later.
const retryBind = time.Second

// Run serves until ctx ends, then returns nil. It waits for addresses that
// cannot be bound yet, and says so once.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	socks, err := s.open(ctx)
	if err != nil {
		return err
	}
	if socks == nil {
		return nil
	}
	defer socks.close()
	s.cfg.Store.notify(func(key model.ServiceKey) { s.lot.changed(key) })
	wg.Go(func() { s.lot.run(ctx) })
	wg.Go(func() { s.ages(ctx) })
	wg.Go(func() { s.forward.watch(ctx) })
	wg.Go(func() { s.cluster.watch(ctx) })
	for _, u := range socks.udp {
		wg.Go(func() { s.serveUDP(ctx, u) })
	}
	conns := newConnLimit(s.metrics)
	for _, l := range socks.tcp {
		wg.Go(func() { s.serveTCP(ctx, l, conns) })
	}
	close(s.ready)
	<-ctx.Done()
	socks.close() // ends the readers
	conns.closeAll()
	s.forward.asking.Wait()
	s.cluster.asking.Wait()
	return nil
}

// sockets are the open listeners of all addresses.
type sockets struct {
	udp []*net.UDPConn
	tcp []*net.TCPListener
}

func (k *sockets) close() {
	for _, u := range k.udp {
		_ = u.Close()
	}
	for _, l := range k.tcp {
		_ = l.Close()
	}
}

// open listens on every address, waiting until that works or ctx ends (nil, nil).
func (s *Server) open(ctx context.Context) (*sockets, error) {
	for said := false; ; said = true {
		k := &sockets{}
		err := s.openAll(ctx, k)
		if err == nil {
			return k, nil
		}
		k.close()
		if ctx.Err() != nil {
			return nil, nil
		}
		if !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.EADDRINUSE) {
			return nil, fmt.Errorf("listen for DNS: %w", err)
		}
		if !said {
			s.cfg.Log.Warn("cannot listen for DNS yet", "error", err, "retry", retryBind)
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(retryBind):
		}
	}
}

func (s *Server) openAll(ctx context.Context, k *sockets) error {
	for _, a := range s.cfg.Addrs {
		family := "6"
		if a.Addr().Is4() {
			family = "4"
		}
		var one net.ListenConfig
		one.SetMultipathTCP(false) // Go's default; nobody asks DNS over several paths
		l, err := one.Listen(ctx, "tcp"+family, a.String())
		if err != nil {
			return err
		}
		k.tcp = append(k.tcp, l.(*net.TCPListener))
		// Several sockets, so that several threads read; the kernel spreads clients over them.
		shared := net.ListenConfig{Control: reusePort}
		for range udpReaders() {
			u, err := shared.ListenPacket(ctx, "udp"+family, a.String())
			if err != nil {
				return err
			}
			k.udp = append(k.udp, u.(*net.UDPConn))
		}
	}
	return nil
}

func udpReaders() int { return min(4, runtime.GOMAXPROCS(0)) }

// reusePort lets several sockets share the address. It takes every socket of
// the same user, but a second server still fails: the TCP listener is not shared.
func reusePort(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		// A burst of 1000 clients must not overrun the default of 208 KB; the
		// kernel caps this at rmem_max.
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20)
	}); e != nil {
		return e
	}
	return err
}

// maxUDPQuery is the longest query that is read whole. A longer one is cut, fails
// to parse and is told so.
const maxUDPQuery = 4096

func (s *Server) serveUDP(ctx context.Context, u *net.UDPConn) {
	buf := make([]byte, maxUDPQuery)
	for ctx.Err() == nil {
		n, client, err := u.ReadFromUDPAddrPort(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // ICMP errors of earlier answers come up here
		}
		s.serve(ctx, buf[:n], &asker{addr: client, udp: u})
	}
}

// asker is where a query came from and its answer goes.
type asker struct {
	addr netip.AddrPort
	udp  *net.UDPConn // or
	tcp  *tcpConn
}

// write sends one packed message. A failure has no one to be told to.
func (a *asker) write(b []byte) {
	if a.udp != nil {
		_, _ = a.udp.WriteToUDPAddrPort(b, a.addr)
		return
	}
	a.tcp.write(b)
}

// ages keeps the metric watch_age_seconds.
func (s *Server) ages(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for s.cfg.LastHeard != nil {
		if at := s.cfg.LastHeard(); !at.IsZero() {
			s.metrics.watchAge.Set(s.cfg.Now().Sub(at).Seconds())
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func lower(name string) string { return strings.ToLower(name) }

// limit is the longest message the asker takes.
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
