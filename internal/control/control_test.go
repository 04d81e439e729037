package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

var somebody = Who{PID: 4711, Version: "v0.4", Mode: "nftables", Node: "worker-7", Since: time.Date(2026, 11, 22, 2, 11, 0, 0, time.Local)}

func take(t *testing.T) *Socket {
	t.Helper()
	s, err := Take(t.Context(), somebody)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestSecondAgent is told who has the namespace, and takes over once that one has gone.
func TestSecondAgent(t *testing.T) {
	netnstest.Enter(t)
	if _, err := Ask(t.Context()); !errors.Is(err, ErrNoAgent) {
		t.Fatalf("nobody there: %v", err)
	}
	first := take(t)
	_, err := Take(t.Context(), Who{})
	var taken *TakenError
	if !errors.As(err, &taken) {
		t.Fatalf("a second agent: %v", err)
	}
	want := somebody
	want.PID = os.Getpid() // the kernel knows better
	if w := taken.Who; w.PID != want.PID || w.Version != want.Version || w.Mode != want.Mode || !w.Since.Equal(want.Since) {
		t.Errorf("the holder is %+v, want %+v", w, want)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	take(t)
}

// TestOtherNamespace: rules belong to a network namespace, and so does the lock.
func TestOtherNamespace(t *testing.T) {
	netnstest.Enter(t)
	take(t)
	other := netnstest.New(t)
	if err := other.Do(func() error { _, err := Ask(t.Context()); return err }); !errors.Is(err, ErrNoAgent) {
		t.Errorf("in another namespace: %v", err)
	}
}

func TestWords(t *testing.T) {
	now := time.Now()
	for want, w := range map[string]Who{
		"pid 4711 (v0.4, since 2026-01-02 02:11)":       {PID: 4711, Version: "v0.4", Since: time.Date(2026, 1, 2, 2, 11, 0, 0, time.Local)},
		"pid 4711 (v0.4, since " + now.Format("15:04)"): {PID: 4711, Version: "v0.4", Since: now},
		"pid 4711 (it does not answer)":                 {PID: 4711},
	} {
		if got := (&TakenError{w}).Error(); got != want+" already manages this network namespace" {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestAgentEndsMeanwhile: who has asked is told so, and not of a connection.
func TestAgentEndsMeanwhile(t *testing.T) {
	netnstest.Enter(t)
	s := take(t)
	s.Handle("GET /status", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = c.Close()
	}))
	want := fmt.Sprintf("agent with pid %d closed the connection without an answer: it ended, or needed more than 10s", os.Getpid())
	if _, err := Get(t.Context(), "/status"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestSilentAgent: one that hangs still holds the namespace.
func TestSilentAgent(t *testing.T) {
	netnstest.Enter(t)
	l, err := net.Listen("unix", Name) // accepts nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // it must connect in that time
	defer cancel()
	if w, err := Ask(ctx); err != nil || w.PID != os.Getpid() || w.Version != "" {
		t.Errorf("got %+v, %v", w, err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := Get(ctx, "/status"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("agent with pid %d has not answered in time", os.Getpid())) {
		t.Errorf("asked for its status: %v", err)
	}
}

// TestOneAnswerPerConnection: a caller that sends many requests and reads nothing has one answer made for it.
func TestOneAnswerPerConnection(t *testing.T) {
	netnstest.Enter(t)
	take(t)
	c, err := new(net.Dialer).DialContext(t.Context(), "unix", Name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(askLimit))
	request := "GET /who HTTP/1.1\r\nHost: agent\r\n\r\n"
	if _, err := io.WriteString(c, request+request); err != nil {
		t.Fatal(err)
	}
	got, _ := io.ReadAll(c) // ends with EOF, or with a reset because of the unread request
	if n := strings.Count(string(got), "HTTP/1.1 200"); n != 1 {
		t.Errorf("%d answers on one connection, want 1", n)
	}
}
