package netlab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// serve starts the echo servers: on every pod and every node, on every echo port, in each protocol and family. A server answers each line (TCP),
// datagram (UDP) or INIT (SCTP) with one line: its name, the source address that it saw, and its own address.
func (l *Lab) serve(ctx context.Context) error {
	ports := append(slices.Clone(echoPorts), canaryPorts...)
	for _, name := range l.names {
		if strings.HasPrefix(name, "client") {
			continue
		}
		h := l.hosts[name]
		for _, ip := range h.Addrs.each() {
			for _, port := range ports {
				if err := l.serveStreams(ctx, h, netip.AddrPortFrom(ip, port)); err != nil {
					return err
				}
				if err := l.servePackets(h, netip.AddrPortFrom(ip, port)); err != nil {
					return err
				}
			}
			if err := l.serveSCTP(h, ip, ports); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Lab) serveStreams(ctx context.Context, h *Host, addr netip.AddrPort) error {
	lis, err := h.Listen(ctx, addr)
	if err != nil {
		return fmt.Errorf("listen on %s in %s: %w", addr, h.Name, err)
	}
	l.onClose(lis.Close)
	l.echo.Go(func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return // closed
			}
			l.echo.Go(func() { echoStream(ctx, h.Name, conn) })
		}
	})
	return nil
}

// echoStream answers until the client disconnects or the lab closes.
func echoStream(ctx context.Context, name string, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if _, err := conn.Write(answer(name, conn.RemoteAddr().String(), conn.LocalAddr().String())); err != nil {
			return
		}
	}
}

func (l *Lab) servePackets(h *Host, addr netip.AddrPort) error {
	pc, err := h.ListenPacket(context.Background(), addr)
	if err != nil {
		return fmt.Errorf("listen on %s/udp in %s: %w", addr, h.Name, err)
	}
	l.onClose(pc.Close)
	l.echo.Go(func() {
		buf := make([]byte, 2048)
		for {
			_, from, err := pc.ReadFromUDPAddrPort(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = pc.WriteToUDPAddrPort(answer(h.Name, from.String(), addr.String()), from)
			}
		}
	})
	return nil
}

func answer(name, source, local string) []byte {
	return fmt.Appendf(nil, "%s %s %s\n", name, source, local)
}

func (l *Lab) onClose(f func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, f)
}
