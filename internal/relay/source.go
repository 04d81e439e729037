package relay

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The source ports of connections to endpoints that keep their client's address. The
// answers to them are redirected here, so no client that asks an endpoint itself should use them:
// they are below the ports that systems assign to sockets bound without one (from 32768 on, RFC 6056).
const (
	FirstSourcePort = 20000
	LastSourcePort  = 32767
)

const (
	sourceTries = 16          // ports that are tried for one connection
	astrayFor   = time.Minute // how long a client's address is not kept after it got no answer
	maxAstray   = 1024
)

// astray is a pair of a client and an endpoint whose answers do not come back here.
type astray struct {
	client netip.Addr
	at     netip.AddrPort
}

// source returns the source address for a client's connection to an endpoint: the zero Addr for
// this host's own.
func (t *Target) source(client, at netip.Addr, endpoint netip.AddrPort) netip.Addr {
	where := t.r.where.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	until, lost := t.astray[astray{client, endpoint}]
	switch {
	case !t.f.Relay.KeepSource, client == endpoint.Addr(), client.Is4() != endpoint.Addr().Is4():
	case client == at, client.IsLoopback(), client.IsLinkLocalUnicast(), where.isNode(client): // this host's own is as good, or better
	case lost && time.Now().Before(until):
	default:
		return client
	}
	return netip.Addr{}
}

// strayed records that a client was answered only without its address.
func (t *Target) strayed(client netip.Addr, endpoint netip.AddrPort) {
	t.mu.Lock()
	if len(t.astray) >= maxAstray {
		clear(t.astray)
	}
	t.astray[astray{client, endpoint}] = time.Now().Add(astrayFor)
	t.mu.Unlock()
	t.r.counts.sourceLost.Add(1)
	t.r.complain(t.service(), "answers of an endpoint to a client's address do not return to this host; the endpoint gets this host's address instead", unix.ETIMEDOUT)
}

// noSource counts and reports that a client's address cannot be used.
func (t *Target) noSource(err error) {
	t.r.counts.sourceLost.Add(1)
	t.r.complain(t.service(), "cannot use a client's address towards an endpoint; the endpoint gets this host's address instead", err)
}

// speakFor binds a socket to a client's address and a port.
func speakFor(fd int, client netip.Addr) error {
	var err error
	if client.Is4() {
		err = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1)
	} else {
		err = unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1)
	}
	if err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	for range sourceTries {
		port := FirstSourcePort + rand.IntN(LastSourcePort-FirstSourcePort+1)
		if err = unix.Bind(fd, sockaddr(netip.AddrPortFrom(client, uint16(port)))); err != unix.EADDRINUSE {
			break
		}
	}
	return os.NewSyscallError("bind", err)
}

// streamFor opens a socket towards an endpoint, with a client's address if there is one.
func streamFor(client netip.Addr, at netip.AddrPort) (int, error) {
	family := unix.AF_INET
	if at.Addr().Is6() {
		family = unix.AF_INET6
	}
	for try := 1; ; try++ {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return -1, os.NewSyscallError("socket", err)
		}
		if client.IsValid() {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // a port is shared by connections to many endpoints
			err = speakFor(fd, client)
		}
		if err == nil {
			err = os.NewSyscallError("connect", unix.Connect(fd, sockaddr(at)))
		}
		switch e := err.(type) {
		case nil:
			return fd, nil
		case *os.SyscallError:
			if e.Err == unix.EINPROGRESS || e.Err == unix.EINTR {
				return fd, nil
			}
			_ = unix.Close(fd)
			if client.IsValid() && e.Err == unix.EADDRNOTAVAIL && try < sourceTries { // that port has a connection to this endpoint
				continue
			}
		}
		return -1, err
	}
}

// datagramsFor returns a function that prepares a UDP socket before it is connected.
func datagramsFor(client netip.Addr) func(_, _ string, c syscall.RawConn) error {
	if !client.IsValid() {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) (failed error) {
		if err := c.Control(func(fd uintptr) { failed = speakFor(int(fd), client) }); err != nil {
			return err
		}
		return failed
	}
}

// probeLimit bounds the probe's wait: the way is inside this network namespace.
const probeLimit = 2 * time.Second

// ProbeSource checks whether clients' addresses can be kept: it connects with the address of a
// client, and the answer must come back. server must be an address of this network
// namespace and client none; lead must redirect the server's answers here.
func ProbeSource(server, client netip.Addr, lead func(netip.AddrPort) error) error {
	fd, err := bindStream(netip.AddrPortFrom(server, 0), func(fd int) error { freeBind(fd, server); return nil })
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nobody waits there
	name, err := unix.Getsockname(fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	if err := lead(addrPort(name)); err != nil {
		return err
	}
	c, err := streamFor(client, addrPort(name))
	if err != nil {
		return err
	}
	defer unix.Close(c) //nolint:errcheck // nothing is sent
	waits := []unix.PollFd{{Fd: int32(c), Events: unix.POLLOUT}}
	for end := time.Now().Add(probeLimit); ; {
		n, err := unix.Poll(waits, int(max(0, time.Until(end)/time.Millisecond)))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return os.NewSyscallError("poll", err)
		case n == 0:
			return os.ErrDeadlineExceeded
		default:
			return socketError(c)
		}
	}
}
