package localhost

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

var loopback = netip.IPv6Loopback()

// rig runs Listeners next to servers that each answer with their own address.
type rig struct {
	*Listeners
	count chan int // listeners, whenever that was reported
}

func start(t *testing.T, p Params) *rig {
	t.Helper()
	r := &rig{count: make(chan int, 100)}
	p.Addr = loopback
	p.OnListening = func(n int) { r.count <- n }
	r.Listeners = New(p)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("Run does not end")
		}
	})
	r.Enable(true)
	return r
}

func (r *rig) waitFor(t *testing.T, listeners int) {
	t.Helper()
	for deadline := time.After(time.Minute); ; {
		select {
		case n := <-r.count:
			if n == listeners {
				return
			}
		case <-deadline:
			t.Fatalf("never %d listeners", listeners)
		}
	}
}

// server echoes lines (TCP) or datagrams (UDP), each after its own address.
func server(t *testing.T, p model.Protocol) model.Backend {
	t.Helper()
	if p == model.UDP {
		c, err := net.ListenPacket("udp", "[::1]:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		go func() {
			buf := make([]byte, 1024)
			for {
				n, from, err := c.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = c.WriteTo([]byte(fmt.Sprintf("%s %s", c.LocalAddr(), buf[:n])), from)
			}
		}()
		return model.Backend{Addr: loopback, Port: c.LocalAddr().(*net.UDPAddr).AddrPort().Port(), Weight: 1}
	}
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				all, _ := io.ReadAll(c) // until the client half-closes
				_, _ = fmt.Fprintf(c, "%s %s", ln.Addr(), all)
				_ = c.Close()
			}()
		}
	}()
	return model.Backend{Addr: loopback, Port: ln.Addr().(*net.TCPAddr).AddrPort().Port(), Weight: 1}
}

// freePort asks the kernel for a port that is free now.
func freePort(t *testing.T) uint16 {
	t.Helper()
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).AddrPort().Port()
}

func nodePort(port uint16, p model.Protocol, backends ...model.Backend) model.Frontend {
	f := model.Frontend{Key: model.FrontendKey{Family: model.IPv6, Protocol: p, Port: port}, Kind: model.NodePort,
		Service: model.ServiceKey{Namespace: "test", Name: "web"}, Verdict: model.Reject, Backends: backends}
	if len(backends) > 0 {
		f.Verdict = model.Forward
	}
	return f
}

// ask sends "hello" and returns the answer.
func ask(port uint16, p model.Protocol) (string, error) {
	network := map[model.Protocol]string{model.TCP: "tcp", model.UDP: "udp"}[p]
	c, err := net.DialTimeout(network, fmt.Sprintf("[::1]:%d", port), time.Minute)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, "hello"); err != nil {
		return "", err
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.CloseWrite()
		all, err := io.ReadAll(c)
		return string(all), err
	}
	buf := make([]byte, 1024)
	n, err := bufio.NewReader(c).Read(buf)
	return string(buf[:n]), err
}

// expect asks until the answers come from just these backends: sockets follow a
// commit with a little delay.
func (r *rig) expect(t *testing.T, f model.Frontend, want map[netip.AddrPort]bool) {
	t.Helper()
	var seen map[string]bool
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		seen = map[string]bool{}
		for range 40 {
			got, err := ask(f.Key.Port, f.Key.Protocol)
			if err != nil {
				t.Fatal(err)
			}
			seen[got] = true
		}
		all := len(seen) == len(want)
		for a := range want {
			all = all && seen[a.String()+" hello"]
		}
		if all {
			return
		}
	}
	t.Errorf("answers %v, want of all in %v", seen, want)
}

// expectOne asks until one backend, any, has them all.
func (r *rig) expectOne(t *testing.T, f model.Frontend) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		seen := map[string]bool{}
		for range 40 {
			got, err := ask(f.Key.Port, f.Key.Protocol)
			if err != nil {
				t.Fatal(err)
			}
			seen[got] = true
		}
		if len(seen) == 1 {
			return
		}
	}
	t.Error("the client never keeps its backend")
}

func both(list ...model.Backend) map[netip.AddrPort]bool {
	out := map[netip.AddrPort]bool{}
	for _, b := range list {
		out[b.AddrPort()] = true
	}
	return out
}

func TestCarries(t *testing.T) {
	for _, p := range []model.Protocol{model.TCP, model.UDP} {
		t.Run(p.String(), func(t *testing.T) {
			r := start(t, Params{})
			a, b := server(t, p), server(t, p)
			f := nodePort(freePort(t), p, a, b)
			r.Update([]model.Frontend{f}, nil)
			r.waitFor(t, 1)
			r.expect(t, f, both(a, b))
			f.AffinityTimeout = time.Hour
			r.Update([]model.Frontend{f}, nil)
			r.expectOne(t, f)
			f.AffinityTimeout, f.Backends = 0, f.Backends[:1]
			r.Update([]model.Frontend{f}, nil)
			r.expect(t, f, both(a))
			r.Update(nil, []model.FrontendKey{f.Key})
			r.waitFor(t, 0)
			if _, err := ask(f.Key.Port, p); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("after the Service is gone: %v, want a refusal", err)
			}
		})
	}
}

// Without endpoints, and when not enabled, there is no listener: the kernel refuses.
func TestRefuses(t *testing.T) {
	r := start(t, Params{})
	a := server(t, model.TCP)
	f := nodePort(freePort(t), model.TCP, a)
	r.Update([]model.Frontend{f}, nil)
	r.waitFor(t, 1)
	r.Update([]model.Frontend{nodePort(f.Key.Port, model.TCP)}, nil)
	r.waitFor(t, 0)
	r.Update([]model.Frontend{f}, nil)
	r.waitFor(t, 1)
	r.Enable(false)
	r.waitFor(t, 0)
	if _, err := ask(f.Key.Port, model.TCP); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("not enabled: %v, want a refusal", err)
	}
}

// An endpoint that does not answer is passed over, and one that must not be asked is not.
func TestPassesOverTheDead(t *testing.T) {
	rejected := make(chan model.Protocol, 10)
	r := start(t, Params{OnRejected: func(p model.Protocol) { rejected <- p }})
	a := server(t, model.TCP)
	dead := model.Backend{Addr: loopback, Port: freePort(t), Weight: 100}
	f := nodePort(freePort(t), model.TCP, dead, a)
	r.Update([]model.Frontend{f}, nil)
	r.waitFor(t, 1)
	r.expect(t, f, both(a))
	g := nodePort(freePort(t), model.TCP, a)
	g.Guarded, g.SourceRanges = true, []netip.Prefix{netip.MustParsePrefix("fd00::/8")}
	r.Update([]model.Frontend{g}, nil)
	r.waitFor(t, 2)
	if got, err := ask(g.Key.Port, model.TCP); err == nil {
		t.Errorf("::1 is not in the source ranges, but got %q", got)
	}
	if p := <-rejected; p != model.TCP {
		t.Errorf("rejected a %s connection", p)
	}
}

func TestBindErrorIsTold(t *testing.T) {
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	told := make(chan error, 10)
	r := start(t, Params{OnBindError: func(_ model.ServiceKey, _ uint16, err error) { told <- err }})
	r.Update([]model.Frontend{nodePort(ln.Addr().(*net.TCPAddr).AddrPort().Port(), model.TCP, server(t, model.TCP))}, nil)
	select {
	case err := <-told:
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("nobody was told that the port is taken")
	}
}
