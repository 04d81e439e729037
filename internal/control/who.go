package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Who is an agent's description of itself.
type Who struct {
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Mode    string    `json:"mode"`
	Node    string    `json:"node"`
	Since   time.Time `json:"since"`
}

// String is "pid 4711 (v0.4, since 02:11)".
func (w Who) String() string {
	if w.Version == "" {
		return fmt.Sprintf("pid %d (it does not answer)", w.PID)
	}
	since := w.Since.Local()
	layout := "15:04"
	if since.Format(time.DateOnly) != time.Now().Format(time.DateOnly) {
		layout = "2006-01-02 15:04"
	}
	return fmt.Sprintf("pid %d (%s, since %s)", w.PID, w.Version, since.Format(layout))
}

// ErrNoAgent reports that no agent runs in this network namespace.
var ErrNoAgent = errors.New("no agent runs in this network namespace")

// TakenError reports that another agent manages this network namespace.
type TakenError struct{ Who Who }

func (e *TakenError) Error() string {
	return fmt.Sprintf("%s already manages this network namespace", e.Who)
}

// SquattedError reports that a process of another user holds the socket: any process in
// the network namespace may bind an abstract name, also one without rights.
type SquattedError struct {
	PID, UID int
	Socket   string // "" = Name
}

func (e *SquattedError) Error() string {
	if e.Socket != "" && e.Socket != Name {
		return fmt.Sprintf("pid %d of user %d holds the socket %s: an agent hands over only to its own user and to root, and accepts nothing from a process of another user; stop that process, or start the new agent as user %d if that is the agent's user",
			e.PID, e.UID, e.Socket, e.UID)
	}
	return fmt.Sprintf("pid %d of user %d holds the socket %s: it is not this node's agent; if that user runs an agent in userspace mode, query it as that user (setpriv --reuid %d fairlead status)",
		e.PID, e.UID, Name, e.UID)
}

// ErrHeld reports that the holder of the name cannot be asked: no caller gets through, as
// with a program that took the name and does not listen, or never accepts. An agent
// does neither.
var ErrHeld = errors.New("a program that accepts no connections holds the socket " + Name + ": it is not a working agent")

// Ask asks the agent of this network namespace who it is. The error is ErrNoAgent
// if there is none, a *SquattedError or ErrHeld if what holds the socket can be none. An agent
// that does not answer in time is known by its process number alone.
func Ask(ctx context.Context) (Who, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	c, cred, err := dial(ctx)
	if err != nil {
		return Who{}, err
	}
	defer func() { _ = c.Close() }()
	var who Who
	if body, err := put(ctx, c, http.MethodGet, "/who"); err != nil || json.Unmarshal(body, &who) != nil {
		who = Who{}
	}
	if cred.Pid != 0 { // 0: the agent's PID namespace is not visible here, and only the number that it reports is known
		who.PID = int(cred.Pid)
	}
	return who, nil
}

// AnswerError is an answer of the agent that reports an error.
type AnswerError struct {
	Status int    // of HTTP; 400: the request is invalid, 403: the caller is not trusted
	Text   string // one line
}

func (e *AnswerError) Error() string { return e.Text }

// Get requests a path, with its query, from the agent of this network namespace, until ctx
// ends, and returns the answer. The error is ErrNoAgent, a *SquattedError, ErrHeld or an *AnswerError.
func Get(ctx context.Context, path string) ([]byte, error) { return call(ctx, http.MethodGet, path) }

// Post is Get for requests that change something.
func Post(ctx context.Context, path string) ([]byte, error) { return call(ctx, http.MethodPost, path) }

func call(ctx context.Context, method, path string) ([]byte, error) {
	c, cred, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	body, err := put(ctx, c, method, path)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET):
		err = fmt.Errorf("agent with pid %d closed the connection without an answer: it ended, or needed more than %s", cred.Pid, answerLimit)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("agent with pid %d has not answered in time: it is stopped, hangs, or gets no CPU: %w", cred.Pid, ctx.Err())
	}
	return body, err
}

// dial connects to the agent, here and not in the HTTP client, on the caller's own
// thread: its network namespace is the one that is meant.
func dial(ctx context.Context) (net.Conn, *unix.Ucred, error) {
	c, err := knock(ctx)
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, nil, ErrNoAgent
	}
	if err != nil {
		return nil, nil, fmt.Errorf("query the agent of this network namespace: %w", err)
	}
	cred, err := Peer(c)
	if err == nil && !Trusted(int(cred.Uid)) {
		err = &SquattedError{PID: int(cred.Pid), UID: int(cred.Uid)}
	}
	if err != nil {
		_ = c.Close()
		return nil, nil, fmt.Errorf("query the agent of this network namespace: %w", err)
	}
	return c, cred, nil
}

// knock connects, and retries for a moment while the queue of callers is full. The
// kernel does not wait for room, and returns EAGAIN.
func knock(ctx context.Context) (net.Conn, error) {
	for end := time.Now().Add(queueLimit); ; {
		c, err := new(net.Dialer).DialContext(ctx, "unix", Name)
		if !errors.Is(err, unix.EAGAIN) {
			return c, err
		}
		if time.Now().After(end) {
			return nil, ErrHeld
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(queueLimit / 100):
		}
	}
}

// maxAnswer bounds the size of an answer that is read.
const maxAnswer = 64 << 20

func put(ctx context.Context, c net.Conn, method, path string) ([]byte, error) {
	client := http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }, DisableKeepAlives: true,
	}}
	r, err := http.NewRequestWithContext(ctx, method, "http://fairlead"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("query the agent: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the agent's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &AnswerError{Status: resp.StatusCode, Text: strings.TrimSpace(string(body))}
	}
	return body, nil
}
