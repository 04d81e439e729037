package testcluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
)

// Gate is a TCP relay in front of the API server that can be shut. It simulates a partition between one agent and the
// server while the test itself keeps its connection to the server.
type Gate struct {
	port     int
	target   string
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	shut  bool
	conns map[net.Conn]struct{}
}

// NewGate opens a relay; Close ends it.
func (c *Cluster) NewGate() (*Gate, error) {
	l, err := c.cfg.Host.Listen(context.Background(), netip.AddrPortFrom(c.cfg.Addr, 0))
	if err != nil {
		return nil, fmt.Errorf("listen for the gate: %w", err)
	}
	g := &Gate{port: l.Addr().(*net.TCPAddr).Port, target: netip.AddrPortFrom(c.cfg.Addr, apiPort).String(),
		dial: c.cfg.Host.Dial, listener: l, conns: map[net.Conn]struct{}{}}
	g.wg.Add(1)
	go g.serve()
	return g, nil
}

// Shut closes every connection and refuses new ones until Open.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	for c := range g.conns {
		c.Close()
	}
}

// Open lets connections through again.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
}

// Close ends the relay and its connections.
func (g *Gate) Close() {
	g.Shut()
	g.listener.Close()
	g.wg.Wait()
}

func (g *Gate) serve() {
	defer g.wg.Done()
	for {
		in, err := g.listener.Accept()
		if err != nil {
			return // closed
		}
		g.wg.Add(1)
		go g.relay(in)
	}
}

func (g *Gate) relay(in net.Conn) {
	defer g.wg.Done()
	defer in.Close()
	if !g.keep(in) {
		return
	}
	defer g.forget(in)
	out, err := g.dial(context.Background(), "tcp", g.target)
	if err != nil {
		return
	}
	defer out.Close()
	if !g.keep(out) {
		return
	}
	defer g.forget(out)
	back := make(chan struct{})
	go func() {
		io.Copy(in, out)
		in.Close()
		close(back)
	}()
	io.Copy(out, in)
	out.Close()
	<-back
}

func (g *Gate) keep(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut {
		g.conns[c] = struct{}{}
	}
	return !g.shut
}

func (g *Gate) forget(c net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, c)
}
