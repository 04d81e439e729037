package dns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sockets are the open listeners of all addresses.
type sockets struct {
	udp []udpSocket
	tcp []tcpSocket
}

type udpSocket struct {
	*net.UDPConn
	intercepted bool
}

type tcpSocket struct {
	*net.TCPListener
	intercepted bool
}

func (k *sockets) close() {
	for _, u := range k.udp {
		_ = u.Close()
	}
	for _, l := range k.tcp {
		_ = l.Close()
	}
}

// open listens on every address. A failure may be temporary: another server may end, an
// address may be added later, descriptors may become free. So it retries until ctx ends
// (then it returns nil), and logs each new reason.
func (s *Server) open(ctx context.Context) *sockets {
	for said := ""; ; {
		k := &sockets{}
		err := s.openAll(ctx, k)
		if err == nil {
			if said != "" {
				s.cfg.Log.Info("the DNS server listens")
			}
			return k
		}
		k.close()
		if ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			s.cfg.Log.Warn("the DNS server cannot listen; trying again each second", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryBind):
		}
	}
}

func (s *Server) openAll(ctx context.Context, k *sockets) error {
	for _, a := range s.cfg.Addrs {
		if err := s.openOne(ctx, k, a, false); err != nil {
			return err
		}
	}
	for _, a := range s.cfg.Intercepted {
		if err := s.openOne(ctx, k, a, true); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) openOne(ctx context.Context, k *sockets, a netip.AddrPort, intercepted bool) error {
	family := "6"
	if a.Addr().Is4() {
		family = "4"
	}
	var one net.ListenConfig
	one.SetMultipathTCP(false) // Go's default is on; no client asks DNS over several paths
	l, err := s.cfg.Listen(ctx, one, "tcp"+family, a.String())
	if err != nil {
		return err
	}
	k.tcp = append(k.tcp, tcpSocket{l.(*net.TCPListener), intercepted})
	// Several sockets, so that several threads read; the kernel spreads clients over them.
	shared := net.ListenConfig{Control: reusePort}
	for range udpReaders() {
		u, err := s.cfg.ListenPacket(ctx, shared, "udp"+family, a.String())
		if err != nil {
			return err
		}
		k.udp = append(k.udp, udpSocket{u.(*net.UDPConn), intercepted})
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
// to parse and gets FORMERR.
const maxUDPQuery = 4096

func (s *Server) serveUDP(ctx context.Context, u udpSocket) {
	buf := make([]byte, maxUDPQuery)
	for ctx.Err() == nil {
		n, client, err := u.ReadFromUDPAddrPort(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // ICMP errors of earlier answers come up here
		}
		s.serve(ctx, buf[:n], &asker{addr: client, udp: u.UDPConn, intercepted: u.intercepted})
	}
}
