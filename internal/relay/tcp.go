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

// dialTries is how many endpoints are tried before the client is refused.
const dialTries = 4

// Why a connection ends before it began.
var (
	errNone    = errors.New("no endpoint accepts the connection")
	errKeptOut = errors.New("the client is not in the source ranges")
)

// dialing is the search for an endpoint that takes a client.
type dialing struct {
	v     visit
	from  netip.AddrPort
	tries int
	until time.Duration  // deadline of the endpoint that is tried now
	kept  bool           // that endpoint is tried with the client's address
	plain netip.AddrPort // is tried without it, because it has not answered
	again bool           // plain is next
	last  error
}

// keepAlive makes the kernel detect, within four minutes, peers that have disappeared without a reset.
func keepAlive(fd int) {
	for _, o := range [][3]int{{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1}, {unix.SOL_TCP, unix.TCP_KEEPIDLE, 120},
		{unix.SOL_TCP, unix.TCP_KEEPINTVL, 30}, {unix.SOL_TCP, unix.TCP_KEEPCNT, 4}} {
		_ = unix.SetsockoptInt(fd, o[0], o[1], o[2]) // fails for a socket that is none of TCP's only
	}
}

// welcome accepts a client, if there are descriptors for it, and searches for an endpoint.
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

// dial tries endpoints until a connection to one has begun.
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

// connect begins to connect to the endpoint; an event of its socket reports the result.
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
		if fd, err = streamFor(client, c.at); err == nil { // else there is no route to the endpoint from any address
			c.t.noSource(why)
		}
	}
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		c.w.r.complain(c.svc, "this host has no free port for a connection to "+c.at.String()+" (net.ipv4.ip_local_port_range, net.ipv4.tcp_tw_reuse)", err)
	}
	if err != nil {
		return err
	}
	c.server, d.kept = side{fd: fd}, client.IsValid()
	c.call.until = c.w.now + c.w.r.limits.dial
	c.w.by(c, c.call.until)
	return c.w.follow(c, &c.server)
}

// missed records that an endpoint did not accept the client.
func (c *conn) missed(err error) {
	if c.server.fd >= 0 {
		_ = unix.Close(c.server.fd)
		c.server.fd = -1
	}
	c.w.r.counts.retried.Add(1)
	d := c.call
	d.last = err
	if d.kept && err == os.ErrDeadlineExceeded { // the endpoint does not answer, or its answer does not come back
		d.kept, d.plain, d.again = false, c.at, true
		return
	}
	d.v.failed = append(d.v.failed, c.at)
}

// refuse counts and resets a client that no endpoint accepts.
func (c *conn) refuse(err error) {
	c.w.r.counts.refused.Add(1)
	c.w.r.p.Log.Debug("no endpoint accepts a connection", "address", c.l.at, "error", err)
	c.abort()
}

// called handles the events of a socket while an endpoint is tried.
func (c *conn) called(s *side, events uint32) {
	wrong := events&(unix.EPOLLERR|unix.EPOLLHUP) != 0
	switch {
	case s == &c.client && wrong: // the client has disconnected
		c.abort()
	case s == &c.client:
	case wrong:
		c.answered(socketError(s.fd))
	case events&unix.EPOLLOUT != 0:
		c.answered(nil)
	}
}

// answered handles the result of a connection attempt.
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

// introduce sends an endpoint the address of its client, if the Service asks for that.
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

// tooLate tries the next endpoint, if this one has timed out.
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

// isSelf reports whether a connection is connected to its own socket: the kernel may choose the
// very port of this host that the socket connects to, if no program listens there (simultaneous
// open, RFC 9293, 3.5).
func (r *Relay) isSelf(fd int, at netip.AddrPort) bool {
	if at.Port() < r.ephemeral[0] || at.Port() > r.ephemeral[1] {
		return false
	}
	name, err := unix.Getsockname(fd)
	return err == nil && addrPort(name) == at
}

// ephemeralPorts returns the range of ports from which the kernel chooses.
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
