package localhost

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

const (
	dialTimeout = 3 * time.Second // a SYN and its first two retries
	dialTries   = 3               // endpoints, before the client is refused
)

func (l *Listeners) listenTCP(ctx context.Context, at netip.AddrPort, to *target) (io.Closer, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	l.work.Go(func() { l.accept(ctx, ln, to) })
	return ln, nil
}

func (l *Listeners) accept(ctx context.Context, ln net.Listener, to *target) {
	for ctx.Err() == nil {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // usually out of descriptors
			l.p.Log.Warn("cannot accept a connection to a NodePort", "address", ln.Addr(), "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		l.work.Go(func() { l.carry(ctx, c.(*net.TCPConn), to) })
	}
}

// carry moves the bytes of one connection until both sides have ended it.
func (l *Listeners) carry(ctx context.Context, client *net.TCPConn, to *target) {
	defer client.Close() //nolint:errcheck // nothing can be done about it
	server, err := l.dial(ctx, client, to)
	if err != nil {
		l.p.Log.Debug("no endpoint accepts a connection to a NodePort", "address", client.LocalAddr(), "error", err)
		l.p.OnRejected(model.TCP)
		_ = client.SetLinger(0) // a reset, which the client reports as "connection reset" or "refused"
		return
	}
	defer server.Close() //nolint:errcheck // as above
	defer context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })()
	done := make(chan struct{})
	go func() {
		pipe(server, client)
		close(done)
	}()
	pipe(client, server)
	<-done
}

// pipe copies one direction (in the kernel, by splice) and forwards the end of stream, so
// that a half-closed connection stays usable in the other direction. If either side is
// broken there is nothing to wait for.
func pipe(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		_, _ = to.Close(), from.Close()
		return
	}
	_ = to.CloseWrite()
}

var errNone = errors.New("no endpoint answers")

func (l *Listeners) dial(ctx context.Context, client *net.TCPConn, to *target) (*net.TCPConn, error) {
	if peer, ok := client.RemoteAddr().(*net.TCPAddr); !ok || !to.admits(peer.AddrPort().Addr()) {
		return nil, errors.New("not in the source ranges")
	}
	d := net.Dialer{Timeout: dialTimeout}
	last := errNone
	var failed []netip.AddrPort
	for range dialTries {
		at, ok := to.pick(time.Now(), failed)
		if !ok {
			break
		}
		c, err := d.DialContext(ctx, "tcp", at.String())
		if err == nil {
			return c.(*net.TCPConn), nil
		}
		failed, last = append(failed, at), err
	}
	return nil, last
}
