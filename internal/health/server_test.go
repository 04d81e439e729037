package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func hello() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
}

// start runs f until the test ends and checks that it ends then, without error.
func start(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("Run did not end")
		}
	})
}

// eventually asks until ok or 30 s are over.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not so after 30 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func fetch(url string) (*http.Response, string, error) {
	c := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(url)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

func TestServerServesBothFamilies(t *testing.T) {
	s := NewServer(ServerParams{Name: "test", Addr: netip.MustParseAddrPort("0.0.0.0:10256"), Handler: hello(), Log: quiet()})
	start(t, s.Run)
	for _, url := range []string{"http://127.0.0.1:10256/", "http://[::1]:10256/"} {
		eventually(t, url, func() bool { _, body, _ := fetch(url); return body == "hello" })
	}
}

func TestServerOff(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := NewServer(ServerParams{Name: "test", Handler: hello(), HardFail: true, Log: quiet()})
	if err := s.Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestServerHardFail(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:10249")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	s := NewServer(ServerParams{Name: "metrics", Addr: netip.MustParseAddrPort("127.0.0.1:10249"), Handler: hello(), HardFail: true, Log: quiet()})
	if err := s.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "listen for metrics on 127.0.0.1:10249") {
		t.Errorf("got %v", err)
	}
}

func TestServerTriesAgainEvery5Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Duration
		var heard []string
		begin := time.Now()
		s := NewServer(ServerParams{Name: "test", Addr: netip.MustParseAddrPort("127.0.0.1:1"), Handler: hello(), Log: quiet(),
			Listening: func(err error) { heard = append(heard, fmt.Sprint(err)) }})
		s.listen = func(context.Context, string, string) (net.Listener, error) {
			tries = append(tries, time.Since(begin))
			if len(tries) < 3 {
				return nil, errors.New("in use")
			}
			return newPipe(), nil
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(tries) != 3 || tries[1] != 5*time.Second || tries[2] != 10*time.Second {
			t.Errorf("tried at %v", tries)
		}
		const failed = "listen for test on 127.0.0.1:1: in use"
		if !slices.Equal(heard, []string{failed, failed, "<nil>"}) {
			t.Errorf("reported %q", heard)
		}
	})
}

// pipe is a listener that nobody connects to.
type pipe struct{ closed chan struct{} }

func newPipe() *pipe { return &pipe{make(chan struct{})} }

func (p *pipe) Accept() (net.Conn, error) { <-p.closed; return nil, net.ErrClosed }
func (p *pipe) Addr() net.Addr            { return &net.TCPAddr{} }
func (p *pipe) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}
