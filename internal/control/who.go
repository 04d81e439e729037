package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"
)

// Who is an agent, as it says itself.
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

// ErrNoAgent says that no agent runs in this network namespace.
var ErrNoAgent = errors.New("no agent runs in this network namespace")

// TakenError says that another agent manages this network namespace.
type TakenError struct{ Who Who }

func (e *TakenError) Error() string {
	return fmt.Sprintf("%s already manages this network namespace", e.Who)
}

// SquattedError says that a program which cannot be an agent holds the name: any
// process in the node's network may take it, also one without rights.
type SquattedError struct{ PID, UID int }

func (e *SquattedError) Error() string {
	return fmt.Sprintf("pid %d of user %d holds the socket %s and is no agent", e.PID, e.UID, Name)
}

// Ask asks the agent of this network namespace who it is. The error is ErrNoAgent
// if there is none, a *SquattedError if what holds the socket can be none. An agent
// that does not answer in time is known by its process number alone.
func Ask(ctx context.Context) (Who, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	// Connected here and not by the HTTP client, on the caller's own thread: its
	// network namespace is the one that is meant.
	c, err := new(net.Dialer).DialContext(ctx, "unix", Name)
	if errors.Is(err, unix.ECONNREFUSED) {
		return Who{}, ErrNoAgent
	}
	if err != nil {
		return Who{}, fmt.Errorf("ask which agent manages this network namespace: %w", err)
	}
	defer func() { _ = c.Close() }()
	cred, err := peer(c)
	if err != nil {
		return Who{}, fmt.Errorf("ask which agent manages this network namespace: %w", err)
	}
	if !trusted(int(cred.Uid)) {
		return Who{}, &SquattedError{PID: int(cred.Pid), UID: int(cred.Uid)}
	}
	who, err := ask(ctx, c)
	if err != nil {
		who = Who{}
	}
	if cred.Pid != 0 { // 0: it lives where we have no number for it, and its own is all there is
		who.PID = int(cred.Pid)
	}
	return who, nil
}

func ask(ctx context.Context, c net.Conn) (who Who, err error) {
	client := http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }, DisableKeepAlives: true,
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://fairlead/who", nil)
	if err != nil {
		return who, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return who, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return who, fmt.Errorf("the agent says %s", resp.Status)
	}
	return who, json.NewDecoder(http.MaxBytesReader(nil, resp.Body, 64<<10)).Decode(&who)
}
