package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"
)

// Name is the socket's address; @ stands for the zero byte of an abstract one.
const Name = "@fairlead"

const (
	// maxConns bounds what clients cost at a time; more of them wait.
	maxConns = 16
	// askLimit bounds each request, on both sides.
	askLimit = 5 * time.Second
	// lastBreath is how long an agent that is ending may still hold the name.
	lastBreath = time.Second
)

// Socket is the lock on this network namespace, and the server behind it.
type Socket struct {
	mux    *http.ServeMux
	server *http.Server
	ended  chan error // size 1: the server may end when nobody waits
}

// Take binds the socket and begins to answer /who with who. If another agent has
// the namespace, the error is a *TakenError; if it is some other user's program
// that holds the name, it is a *SquattedError.
func Take(ctx context.Context, who Who) (*Socket, error) {
	l, err := listen(ctx)
	if err != nil {
		return nil, err
	}
	s := &Socket{mux: http.NewServeMux(), ended: make(chan error, 1)}
	s.mux.HandleFunc("GET /who", func(w http.ResponseWriter, _ *http.Request) { Answer(w, who) })
	s.server = &http.Server{
		Handler: rootOnly(s.mux), MaxHeaderBytes: 16 << 10,
		ReadTimeout: askLimit, WriteTimeout: askLimit, IdleTimeout: askLimit,
	}
	go func() { s.ended <- s.server.Serve(netutil.LimitListener(peerListener{l}, maxConns)) }()
	return s, nil
}

// listen tries for a moment, because an agent that is ending gives the name back
// only with its last breath.
func listen(ctx context.Context) (net.Listener, error) {
	for end := time.Now().Add(lastBreath); ; {
		l, err := new(net.ListenConfig).Listen(ctx, "unix", Name)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return nil, fmt.Errorf("take the lock on this network namespace: %w", err)
		}
		who, err := Ask(ctx)
		switch {
		case errors.Is(err, ErrNoAgent): // it has just ended
		case err != nil:
			return nil, err
		case time.Now().After(end):
			return nil, &TakenError{who}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lastBreath / 10):
		}
	}
}

// Handle has the server answer one more path; any goroutine may call it.
func (s *Socket) Handle(pattern string, h http.Handler) { s.mux.Handle(pattern, h) }

// Answer writes an answer that Get reads.
func Answer(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil { // our own types: a programmer's error
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// Run waits until ctx ends, then gives the socket back. It fails if the server does.
func (s *Socket) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return s.Close()
	case err := <-s.ended:
		return fmt.Errorf("serve on %s: %w", Name, err)
	}
}

// Close gives the socket back.
func (s *Socket) Close() error { return s.server.Close() }

// peerListener gives connections whose remote address is who called, by the kernel's
// word: the one thing about a connection that every wrapper passes on.
type peerListener struct{ net.Listener }

func (l peerListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	p := peerConn{Conn: c, uid: -1}
	if cred, err := peer(c); err == nil {
		p.uid = peerUID(cred.Uid)
	}
	return p, nil
}

type peerConn struct {
	net.Conn
	uid peerUID
}

func (c peerConn) RemoteAddr() net.Addr { return c.uid }

// peerUID is the user at the other end; -1 if the kernel would not say.
type peerUID int

func (peerUID) Network() string  { return "unix" }
func (u peerUID) String() string { return strconv.Itoa(int(u)) }

// rootOnly answers root and the agent's own user: what the agent knows of Services
// is not for every process that shares the node's network.
func rootOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if uid, err := strconv.Atoi(r.RemoteAddr); err != nil || !trusted(uid) {
			http.Error(w, "only root may ask the agent", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func trusted(uid int) bool { return uid == 0 || uid == os.Geteuid() }

// peer gives the process at the other end: who connected, or who listens.
func peer(c net.Conn) (*unix.Ucred, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("ask who is at the other end of a %T: no Unix socket", c)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil, err
	}
	return cred, credErr
}
