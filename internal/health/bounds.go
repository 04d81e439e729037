package health

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// These servers listen where a neighbour, and often the world, can reach them. Each
// connection costs about 10 kB and a descriptor; the bounds below keep a flood from
// costing more, and keep the kubelet's probe, which comes over loopback, from waiting
// behind it: a probe that fails restarts the agent.
const (
	maxConns      = 1024 // of all servers that share a bounds, loopback apart
	maxConnsLocal = 256  // from loopback
	maxConnsEach  = 32   // of one remote address to one listener
	headerLimit   = 16 << 10
	readLimit     = 10 * time.Second
	idleLimit     = 30 * time.Second
	writeLimit    = 10 * time.Second
	// profileLimit is the writeLimit of the metrics server, where a profile takes as
	// long as its caller asks for.
	profileLimit = 2 * time.Minute
)

// bounds counts the connections of some listeners.
type bounds struct {
	mu            sync.Mutex
	remote, local int
}

// listener returns l with the bounds applied: connections over them are closed at once,
// because a connection that waits would block the next ones.
func (b *bounds) listener(l net.Listener) net.Listener {
	return &boundedListener{Listener: l, b: b, by: map[netip.Addr]int{}}
}

type boundedListener struct {
	net.Listener
	b  *bounds
	by map[netip.Addr]int // guarded by b.mu
}

// Accept returns the next connection within the bounds.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := remoteAddr(c)
		if l.take(from) {
			return &boundedConn{Conn: c, release: sync.OnceFunc(func() { l.give(from) })}, nil
		}
		_ = c.Close()
	}
}

func (l *boundedListener) take(from netip.Addr) bool {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if from.IsLoopback() {
		if l.b.local >= maxConnsLocal {
			return false
		}
		l.b.local++
		return true
	}
	if l.b.remote >= maxConns || l.by[from] >= maxConnsEach {
		return false
	}
	l.b.remote++
	l.by[from]++
	return true
}

func (l *boundedListener) give(from netip.Addr) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if from.IsLoopback() {
		l.b.local--
		return
	}
	l.b.remote--
	if l.by[from]--; l.by[from] == 0 {
		delete(l.by, from)
	}
}

// remoteAddr returns the remote address of a TCP connection, and the zero Addr for any
// other.
func remoteAddr(c net.Conn) netip.Addr {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

type boundedConn struct {
	net.Conn
	release func()
}

func (c *boundedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// newHTTPServer returns a server that limits each client to the time that a correct
// client needs. Errors of clients are logged at debug level only.
func newHTTPServer(h http.Handler, write time.Duration, log *slog.Logger) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: readLimit, ReadTimeout: readLimit, WriteTimeout: write, IdleTimeout: idleLimit,
		MaxHeaderBytes: headerLimit, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
}
