package dns

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Bounds of TCP: a client that is slow, or opens connections for nothing, costs
// little and keeps nobody else out.
const (
	maxConns          = 512
	maxConnsPerClient = 32
	maxPipelined      = 64 // queries of one connection that wait at once
	idleTimeout       = 10 * time.Second
	readTimeout       = 2 * time.Second // for the rest of a message that has begun
	writeTimeout      = 2 * time.Second
)

// connLimit counts the connections of all listeners.
type connLimit struct {
	metrics *Metrics
	mu      sync.Mutex
	conns   map[*tcpConn]struct{}
	clients map[netip.Addr]int
	wg      sync.WaitGroup
}

func newConnLimit(m *Metrics) *connLimit {
	return &connLimit{metrics: m, conns: map[*tcpConn]struct{}{}, clients: map[netip.Addr]int{}}
}

func (l *connLimit) enter(c *tcpConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := c.addr.Addr()
	if len(l.conns) >= maxConns || l.clients[a] >= maxConnsPerClient {
		l.metrics.dropped.WithLabelValues(dropTCPLimit).Inc()
		return false
	}
	l.conns[c] = struct{}{}
	l.clients[a]++
	l.wg.Add(1)
	l.metrics.tcpConns.Set(float64(len(l.conns)))
	return true
}

func (l *connLimit) leave(c *tcpConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := c.addr.Addr()
	delete(l.conns, c)
	if l.clients[a]--; l.clients[a] == 0 {
		delete(l.clients, a)
	}
	l.wg.Done()
	l.metrics.tcpConns.Set(float64(len(l.conns)))
}

func (l *connLimit) closeAll() {
	l.mu.Lock()
	for c := range l.conns {
		_ = c.conn.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}

// tcpConn is one connection. Its reader is one goroutine; answers come from
// any, in any order (RFC 7766 section 6.2.1.1).
type tcpConn struct {
	conn  *net.TCPConn
	addr  netip.AddrPort
	slots chan struct{} // one for each query that has no answer yet

	mu sync.Mutex // serialises writes
}

func (s *Server) serveTCP(ctx context.Context, l tcpSocket, limit *connLimit) {
	for ctx.Err() == nil {
		conn, err := l.AcceptTCP()
		if err != nil {
			if ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond) // out of descriptors: do not spin
			}
			continue
		}
		c := &tcpConn{conn: conn, slots: make(chan struct{}, maxPipelined)}
		c.addr = conn.RemoteAddr().(*net.TCPAddr).AddrPort()
		from := &asker{addr: c.addr, tcp: c, intercepted: l.intercepted}
		if s.clients.find(from.client(), l.intercepted) == nil {
			s.metrics.dropped.WithLabelValues(dropNotAllowed).Inc()
			s.stranger(from.client())
			_ = conn.Close()
			continue
		}
		if !limit.enter(c) {
			_ = conn.Close()
			continue
		}
		go func() {
			defer limit.leave(c)
			defer s.guard.catch(nil)
			s.readTCP(ctx, from)
		}()
	}
}

func (s *Server) readTCP(ctx context.Context, from *asker) {
	c := from.tcp
	defer s.parking.cancel(c)
	defer c.conn.Close()
	var size [2]byte
	buf := make([]byte, 512)
	for ctx.Err() == nil {
		_ = c.conn.SetReadDeadline(time.Now().Add(idleTimeout))
		if _, err := io.ReadFull(c.conn, size[:1]); err != nil {
			return
		}
		_ = c.conn.SetReadDeadline(time.Now().Add(readTimeout))
		if _, err := io.ReadFull(c.conn, size[1:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(size[:]))
		if n > len(buf) {
			buf = make([]byte, n)
		}
		if _, err := io.ReadFull(c.conn, buf[:n]); err != nil {
			return
		}
		if n < headerSize || buf[2]&0x80 != 0 {
			return // no query: nothing will answer it, and no slot would come back
		}
		select {
		case c.slots <- struct{}{}:
		case <-time.After(idleTimeout):
			return
		}
		s.serve(ctx, buf[:n], from)
	}
}

// write sends one answer and frees its slot. A client that does not read is
// cut off.
func (c *tcpConn) write(b []byte) {
	defer c.release()
	msg := make([]byte, 2+len(b))
	binary.BigEndian.PutUint16(msg, uint16(len(b)))
	copy(msg[2:], b)
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := c.conn.Write(msg); err != nil {
		_ = c.conn.Close()
	}
}

// release frees the slot of one query. A fault may make two answers of one query.
func (c *tcpConn) release() {
	select {
	case <-c.slots:
	default:
	}
}
