package relay

import (
	"errors"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// dialTries is how many endpoints are asked before the client is told.
const dialTries = 4

// Why a connection ends before it began.
var (
	errNone    = errors.New("no endpoint takes it")
	errKeptOut = errors.New("the client is not in the source ranges")
)

// dialing is the search for an endpoint that takes a client.
type dialing struct {
	v     visit
	from  netip.AddrPort
	tries int
	until time.Duration  // for the one that is asked now
	kept  bool           // that one is asked in the client's name
	plain netip.AddrPort // is asked without, for it has not answered
	again bool           // that is next
	last  error
}

// keepAlive finds peers that are gone without a word, within four minutes.
func keepAlive(fd int) {
	for _, o := range [][3]int{{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1}, {unix.SOL_TCP, unix.TCP_KEEPIDLE, 120},
		{unix.SOL_TCP, unix.TCP_KEEPINTVL, 30}, {unix.SOL_TCP, unix.TCP_KEEPCNT, 4}} {
		_ = unix.SetsockoptInt(fd, o[0], o[1], o[2]) // fails for a socket that is none of TCP's only
	}
}

// welcome takes a client in, if there are descriptors for it, and looks for an endpoint.
func (w *worker) welcome(l *Listener, fd int, from netip.AddrPort) {
	t, r := l.t, w.r
	svc, own := t.guest()
	if err := r.budget.take(svc, 2, own); err != nil {
		t.turnedAway(err)
		unlinger(fd)
		_ = unix.Close(fd)
		return
	}
	r.counts.accepted.Add(1)
	r.work.Add(1)
	c := &conn{w: w, t: t, l: l, svc: svc, client: side{fd: fd, writable: true, noDelay: true}, server: side{fd: -1}}
	c.call = &dialing{from: from, v: visit{client: from.Addr(), at: l.at.Addr()}, last: errNone}
	c.up.init(c, &c.client, &c.server, &c.down)
	c.down.init(c, &c.server, &c.client, &c.up)
	w.enter(c)
	switch err := w.follow(c, &c.client); {
	case err != nil:
		c.refuse(err)
	case !t.admits(c.call.v.client, c.call.v.at):
		c.refuse(errKeptOut)
	default:
		c.dial()
	}
}

// dial asks endpoints until one may take the client.
func (c *conn) dial() {
	d := c.call
	for d.tries < dialTries {
		at, ok := d.plain, d.again
		if !ok {
			at, ok = c.l.choose(&d.v, time.Now())
		}
		if !ok {
			break
		}
		if !d.again {
			d.tries++
		}
		d.again = false
		c.at = at
		err := c.connect()
		if err == nil {
			return
		}
		c.missed(err)
	}
	c.refuse(d.last)
}

// connect begins to connect to the endpoint; its socket tells how that ends.
func (c *conn) connect() error {
	d := c.call
	client := netip.Addr{}
	if c.at != d.plain {
		client = c.t.source(d.v.client, d.v.at, c.at)
	}
	fd, err := streamFor(client, c.at)
	if err != nil && client.IsValid() {
		why := err
		client = netip.Addr{}
		if fd, err = streamFor(client, c.at); err == nil { // else there is no way to the endpoint, for nobody
			c.t.noSource(why)
		}
	}
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		c.w.r.complain(c.svc, "this host has no port left for a connection to "+c.at.String()+" (net.ipv4.ip_local_port_range, net.ipv4.tcp_tw_reuse)", err)
	}
	if err != nil {
		return err
	}
	c.server, d.kept = side{fd: fd}, client.IsValid()
	c.call.until = c.w.now + c.w.r.limits.dial
	c.w.by(c, c.call.until)
	return c.w.follow(c, &c.server)
}

// missed says that an endpoint did not take the client.
func (c *conn) missed(err error) {
	if c.server.fd >= 0 {
		_ = unix.Close(c.server.fd)
		c.server.fd = -1
	}
	c.w.r.counts.retried.Add(1)
	d := c.call
	d.last = err
	if d.kept && err == os.ErrDeadlineExceeded { // it, or the way back
		d.kept, d.plain, d.again = false, c.at, true
		return
	}
	d.v.failed = append(d.v.failed, c.at)
}

// refuse reports a client that nobody takes it.
func (c *conn) refuse(err error) {
	c.w.r.counts.refused.Add(1)
	c.w.r.p.Log.Debug("a connection finds no endpoint", "address", c.l.at, "error", err)
	c.abort()
}

// called goes on with what a socket says while an endpoint is asked.
func (c *conn) called(s *side, events uint32) {
	wrong := events&(unix.EPOLLERR|unix.EPOLLHUP) != 0
	switch {
	case s == &c.client && wrong: // it has gone
		c.abort()
	case s == &c.client:
	case wrong:
		c.answered(socketError(s.fd))
	case events&unix.EPOLLOUT != 0:
		c.answered(nil)
	}
}

// answered goes on when an endpoint has answered.
func (c *conn) answered(err error) {
	if err == nil && c.w.r.isSelf(c.server.fd, c.at) {
		err = unix.ECONNREFUSED
	}
	if err == nil {
		err = c.introduce()
	}
	if err != nil {
		c.missed(err)
		c.dial()
		return
	}
	if c.at == c.call.plain {
		c.t.strayed(c.call.v.client, c.at)
	}
	c.begin()
}

// introduce reports an endpoint who its client is, if the Service asks for that.
func (c *conn) introduce() error {
	if !c.t.wishes().ProxyProtocol {
		return nil
	}
	at := c.l.at
	if name, err := unix.Getsockname(c.client.fd); err == nil { // the port, where the kernel has chosen it
		at = addrPort(name)
	}
	c.server.written = true
	_, err := unix.Write(c.server.fd, proxyHeader(c.call.from, at)) // the first bytes always find room
	return err
}

// tooLate asks the next endpoint, if this one's time is over.
func (c *conn) tooLate() {
	if c.w.now < c.call.until {
		c.w.by(c, c.call.until)
		return
	}
	c.missed(os.ErrDeadlineExceeded)
	c.dial()
}

func socketError(fd int) error {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil || n == 0 {
		return err
	}
	return unix.Errno(n)
}

// isSelf reports whether a connection leads to its own socket: who connects to a port of
// this host that nobody has may be given that very port (simultaneous open, RFC 9293, 3.5).
func (r *Relay) isSelf(fd int, at netip.AddrPort) bool {
	if at.Port() < r.ephemeral[0] || at.Port() > r.ephemeral[1] {
		return false
	}
	name, err := unix.Getsockname(fd)
	return err == nil && addrPort(name) == at
}

// ephemeralPorts reads from which ports the kernel chooses.
func ephemeralPorts() [2]uint16 {
	text, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	f := strings.Fields(string(text))
	if len(f) != 2 {
		return [2]uint16{1, 65535}
	}
	low, err1 := strconv.ParseUint(f[0], 10, 16)
	high, err2 := strconv.ParseUint(f[1], 10, 16)
	if err1 != nil || err2 != nil {
		return [2]uint16{1, 65535}
	}
	return [2]uint16{uint16(low), uint16(high)}
}
