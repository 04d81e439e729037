package relay

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// A flood of UDP clients at one Service leaves ports to other Services and to the node's
// other programs. If those have taken all ports, the log says so, a metric counts it, and
// clients are served again when a port is free.
func TestUDPFloodLeavesPorts(t *testing.T) {
	const file = "/proc/sys/net/ipv4/ip_local_port_range"
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b := udpServer(t, "127.0.0.1")
	if err := os.WriteFile(file, []byte("31000 31063"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(file, before, 0o644) })
	var log lines
	r := newRelay(t, Params{Log: slog.New(slog.NewTextHandler(&log, nil))})
	listen := func(name string, port uint16) netip.AddrPort {
		at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
		l, err := r.Listen(r.Target(abused(name, b)), at, model.UDP)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return at
	}
	flooded, other := listen("flooded", 20100), listen("other", 20101)
	client := func(port int, to netip.AddrPort) udpClient {
		c, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 0, 1, 1), Port: port}}).Dial("udp", to.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return udpClient{c}
	}
	for i := range 100 {
		client(21000+i, flooded).ask(t, 1)
	}
	client(21200, other).ask(t, 1)
	var own []net.Conn // another program takes what is left
	for len(own) < 8 {
		c, err := net.Dial("udp", b.AddrPort().String())
		if err != nil {
			t.Fatalf("the node's own program finds %d ports: %v", len(own), err)
		}
		own = append(own, c)
		t.Cleanup(func() { _ = c.Close() })
	}
	for len(own) < 64 {
		c, err := net.Dial("udp", b.AddrPort().String())
		if err != nil {
			break
		}
		own = append(own, c)
		t.Cleanup(func() { _ = c.Close() })
	}
	r.mu.Lock()
	clear(r.logged)
	r.mu.Unlock()
	third := listen("third", 20102)
	c := client(21300, third)
	_, _ = c.Write([]byte("x"))
	eventually(t, func() error {
		if n, text := r.Counts(), log.String(); n.OverPorts == 0 || n.Lost == 0 || !strings.Contains(text, "no free port for a UDP client") || !strings.Contains(text, "test/third") {
			return fmt.Errorf("%+v, the log says %q", n, text)
		}
		return nil
	})
	_ = own[0].Close()
	c.ask(t, 1)
}

// With no free port towards an endpoint, clients go to another one, or are turned back and
// the log says which setting it is; when a connection has ended the next one is served.
func TestNoPortLeft(t *testing.T) {
	const file, few = "/proc/sys/net/ipv4/ip_local_port_range", 4
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	stay := func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1))
		_, _ = fmt.Fprint(c, c.LocalAddr())
		_, _ = c.Read(make([]byte, 1))
		reset(c)
	}
	a, b := tcpServer(t, "127.0.0.1", stay), tcpServer(t, "127.0.0.1", stay)
	var log lines
	r := newRelay(t, Params{Log: slog.New(slog.NewTextHandler(&log, nil))})
	one, two := r.Target(abused("one", a)), r.Target(frontend(a, b))
	atOne, atTwo := open(t, one, "127.0.0.1", model.TCP), open(t, two, "127.0.0.1", model.TCP)
	// Below those that others here were given: one that waits for the end of its time cannot be had.
	if err := os.WriteFile(file, []byte("30000 30003"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(file, before, 0o644) })
	from := func(port int, to netip.AddrPort) (*net.TCPConn, error) { return dialFrom(t, port, to) }
	turnedAway := func(port int) error {
		c, err := from(port, atOne)
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		return err
	}
	again := 0
	var held []*net.TCPConn
	for i := range few {
		c, err := from(20001+i, atOne)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("x"))
		if _, err := c.Read(make([]byte, 100)); err != nil {
			t.Fatalf("client %d of %d: %v", i, few, err)
		}
		held = append(held, c)
	}
	if err := turnedAway(20009); !turnedBack(err) {
		t.Errorf("with no free port: %v", err)
	}
	eventually(t, func() error {
		if text := log.String(); !strings.Contains(text, "no free port") || !strings.Contains(text, "ip_local_port_range") || !strings.Contains(text, "test/one") {
			return fmt.Errorf("the log says %q", text)
		}
		return nil
	})
	c, err := from(20010, atTwo)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte("x"))
	buf := make([]byte, 100)
	if n, err := c.Read(buf); err != nil || string(buf[:n]) != b.AddrPort().String() {
		t.Errorf("a Service with another endpoint: %q, %v", buf[:n], err)
	}
	reset(held[0])
	eventually(t, func() error {
		c, err := from(20011+again, atOne)
		again++
		if err != nil {
			return err
		}
		_, _ = c.Write([]byte("x"))
		_, err = c.Read(make([]byte, 100))
		return err
	})
}

// dialFrom connects from a port that the agent may not take.
func dialFrom(t *testing.T, port int, to netip.AddrPort) (*net.TCPConn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, 1), Port: port}}
	c, err := d.DialContext(t.Context(), "tcp", to.String())
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(limit()))
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn), nil
}

// lines is a log that may be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
