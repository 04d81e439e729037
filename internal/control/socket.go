package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"
)

// Name is the socket's address; @ stands for the zero byte of an abstract one.
const Name = "@fairlead"

const (
	// maxConns bounds the connections that are handled concurrently; more of them wait.
	maxConns = 16
	// maxStrangers is how many of them may be of users who get a refusal only: more are
	// closed at once, so that they cannot keep root waiting.
	maxStrangers = 4
	// askLimit bounds reading a request, and a caller's connect.
	askLimit = 5 * time.Second
	// answerLimit bounds the handling of a request, unless its handler sets another deadline: commands wait as long.
	answerLimit = 10 * time.Second
	// lastBreath is how long an agent that is ending may still hold the name.
	lastBreath = time.Second
	// queueLimit is how long a caller waits for room in the queue.
	queueLimit = 2 * time.Second
)

// Socket is the lock on this network namespace, and the server behind it.
type Socket struct {
	mux    *http.ServeMux
	server *http.Server
	ended  chan error // size 1: the server may end when no goroutine waits
}

// Take binds the socket and begins to answer /who with who. If another agent has
// the namespace, the error is a *TakenError; if it is some other user's program
// that holds the name, it is a *SquattedError, or ErrHeld.
func Take(ctx context.Context, who Who) (*Socket, error) {
	l, err := listen(ctx)
	if err != nil {
		return nil, err
	}
	s := &Socket{mux: http.NewServeMux(), ended: make(chan error, 1)}
	s.mux.HandleFunc("GET /who", func(w http.ResponseWriter, _ *http.Request) { Answer(w, who) })
	s.server = &http.Server{
		Handler: rootOnly(s.mux), MaxHeaderBytes: 16 << 10,
		ReadTimeout: askLimit, WriteTimeout: answerLimit, IdleTimeout: askLimit,
	}
	s.server.SetKeepAlivesEnabled(false) // a caller that sends requests and never reads costs one answer, not thousands
	go func() { s.ended <- s.server.Serve(netutil.LimitListener(newPeerListener(l), maxConns)) }()
	return s, nil
}

// listen retries for a moment, because an agent that is ending releases the name
// only when its process exits.
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
		late := time.Now().After(end)
		switch {
		case errors.Is(err, ErrNoAgent) && late: // an agent listens as soon as it has the name
			return nil, ErrHeld
		case errors.Is(err, ErrNoAgent): // it has just ended
		case err != nil:
			return nil, err
		case late:
			return nil, &TakenError{who}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lastBreath / 10):
		}
	}
}

// Handle registers the handler of one more path; any goroutine may call it.
func (s *Socket) Handle(pattern string, h http.Handler) { s.mux.Handle(pattern, h) }

// Answer writes an answer that Get reads.
func Answer(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil { // the types are the agent's: a programming error
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body))) // so that an answer is complete once it is flushed
	_, _ = w.Write(body)
}

// Run waits until ctx ends, then closes the socket. It returns the server's error if the server fails.
func (s *Socket) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return s.Close()
	case err := <-s.ended:
		return fmt.Errorf("serve on %s: %w", Name, err)
	}
}

// Close closes the socket and releases its name.
func (s *Socket) Close() error { return s.server.Close() }
