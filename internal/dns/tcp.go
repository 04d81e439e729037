package dns

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Bounds of TCP: a client that is slow, or opens connections without using them, costs
// little and keeps no other client out.
const (
	maxConns          = 512
	maxConnsPerClient = 32
	maxPipelined      = 64 // queries of one connection that wait at once
	idleTimeout       = 10 * time.Second
	readTimeout       = 2 * time.Second // for the rest of a message that has begun
	writeTimeout      = 2 * time.Second
	maxQueued         = 128 << 10 // bytes of answers that one connection has not taken
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

// tcpConn is one connection. Its reader is one goroutine and its writer another; answers come from any goroutine, in any
// order (RFC 7766 section 6.2.1.1), and none of them waits for the client.
type tcpConn struct {
	conn  *net.TCPConn
	addr  netip.AddrPort
	slots chan struct{} // one for each query whose answer is not written

	mu     sync.Mutex
	change sync.Cond // of what follows
	queue  [][]byte  // answers that the writer has not begun
	size   int       // bytes of answers that are not written
	ended  bool      // the reader has returned, or the connection is cut off
}

func newTCPConn(conn *net.TCPConn) *tcpConn {
	c := &tcpConn{conn: conn, addr: conn.RemoteAddr().(*net.TCPAddr).AddrPort(), slots: make(chan struct{}, maxPipelined)}
	c.change.L = &c.mu
	return c
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
		c := newTCPConn(conn)
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
			var writer sync.WaitGroup
			writer.Go(c.writeAll)
			defer writer.Wait()
			defer c.end()
			defer s.guard.catch(nil)
			s.readTCP(ctx, from)
		}()
	}
}

func (s *Server) readTCP(ctx context.Context, from *asker) {
	c := from.tcp
	defer s.parking.cancel(c)
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
		if !c.room() {
			return
		}
		s.serve(ctx, buf[:n], from)
	}
}

// write queues one answer; it does not block. A client that leaves more than maxQueued bytes unread is cut off.
func (c *tcpConn) write(b []byte) {
	msg := make([]byte, 2+len(b))
	binary.BigEndian.PutUint16(msg, uint16(len(b)))
	copy(msg[2:], b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended && c.size > 0 && c.size+len(msg) > maxQueued {
		c.cutOff()
	}
	if c.ended {
		c.release()
		return
	}
	c.queue = append(c.queue, msg)
	c.size += len(msg)
	c.change.Broadcast()
}

// cutOff closes the connection and forgets its answers. mu is held.
func (c *tcpConn) cutOff() {
	_ = c.conn.Close()
	c.queue, c.size, c.ended = nil, 0, true
	c.change.Broadcast()
}

// room waits until the longest answer fits into the queue, so that a client that pipelines is slowed down and not cut
// off. It reports whether the connection is still open.
func (c *tcpConn) room() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.ended && c.size > maxQueued-dns.MaxMsgSize-2 {
		c.change.Wait()
	}
	return !c.ended
}

// end lets the writer write what is queued, within writeTimeout, and then close the connection.
func (c *tcpConn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	c.change.Broadcast()
}

// writeAll is the writer: it returns once the reader has returned and the queue is empty, or the client does not read.
func (c *tcpConn) writeAll() {
	defer c.conn.Close()
	for {
		msg := c.next()
		if msg == nil {
			return
		}
		_, err := c.conn.Write(msg)
		c.written(len(msg), err)
	}
}

// next waits for an answer and returns it, or nil at the end.
func (c *tcpConn) next() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) == 0 {
		if c.ended {
			return nil
		}
		c.change.Wait()
	}
	msg := c.queue[0]
	c.queue = c.queue[1:]
	if !c.ended {
		_ = c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	return msg
}

// written subtracts an answer from the queued bytes. A client that does not read is cut off.
func (c *tcpConn) written(n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release()
	if err != nil {
		c.cutOff()
		return
	}
	c.size -= min(n, c.size)
	c.change.Broadcast()
}

// release frees the slot of one query. A fault may make two answers of one query.
func (c *tcpConn) release() {
	select {
	case <-c.slots:
	default:
	}
}
