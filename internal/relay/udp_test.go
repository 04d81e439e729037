package relay

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// udpServer answers each datagram with its own address and the sender's port.
func udpServer(t *testing.T, host string) model.Backend {
	t.Helper()
	pc, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pc.Close() })
	go func() {
		buf := make([]byte, maxDatagram)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = pc.WriteTo([]byte(fmt.Sprintf("%s %d %d", pc.LocalAddr(), n, from.(*net.UDPAddr).Port)), from)
		}
	}()
	return backend(pc.LocalAddr().(*net.UDPAddr).AddrPort())
}

type udpClient struct{ net.Conn }

func newUDPClient(t *testing.T, to netip.AddrPort) udpClient {
	t.Helper()
	c, err := net.Dial("udp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return udpClient{c}
}

// ask repeats until there is an answer: a datagram may get lost.
func (c udpClient) ask(t *testing.T, size int) string {
	t.Helper()
	buf := make([]byte, 200)
	var answer string
	eventually(t, func() error {
		if _, err := c.Write(make([]byte, size)); err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		n, err := c.Read(buf)
		answer = string(buf[:n])
		return err
	})
	return answer
}

// meets asks until an answer says what it must: one to an earlier question may come late.
func (c udpClient) meets(t *testing.T, size int, want string) {
	t.Helper()
	eventually(t, func() error {
		if got := c.ask(t, size); !strings.Contains(got, want) {
			return fmt.Errorf("the client meets %q, want %q", got, want)
		}
		return nil
	})
}

func TestUDPFlows(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		r := newRelay(t, Params{})
		a, b := udpServer(t, host), udpServer(t, host)
		tg := r.Target(frontend(a, b))
		at := open(t, tg, host, model.UDP)
		met := map[string]bool{}
		var clients []udpClient
		for range 40 {
			c := newUDPClient(t, at)
			first := c.ask(t, 3)
			if again := c.ask(t, 3); again != first {
				t.Fatalf("a client meets %q, then %q", first, again)
			}
			clients = append(clients, c)
			met[first[:len(a.AddrPort().String())]] = true
		}
		if len(met) != 2 {
			t.Errorf("40 clients meet %v", met)
		}
		if n := r.Counts().Flows; n != 40 {
			t.Errorf("%d flows", n)
		}
		clients[0].meets(t, 60_000, " 60000 ")
		tg.Set(frontend(a)) // clients of the other one move on
		for _, c := range clients {
			c.meets(t, 1, a.AddrPort().String())
		}
	}
}

// An endpoint that still serves keeps its clients while it ends.
func TestUDPDrain(t *testing.T) {
	r := newRelay(t, Params{})
	a, b := udpServer(t, "127.0.0.1"), udpServer(t, "127.0.0.1")
	tg := r.Target(frontend(a))
	at := open(t, tg, "127.0.0.1", model.UDP)
	c := newUDPClient(t, at)
	first := c.ask(t, 1)
	f := frontend(b)
	f.Others = []model.Other{{Addr: a.AddrPort(), Serving: true}}
	tg.Set(f)
	if got := c.ask(t, 1); got != first {
		t.Errorf("its endpoint still serves, and the client meets %q instead of %q", got, first)
	}
	f.Others = []model.Other{{Addr: a.AddrPort()}}
	tg.Set(f)
	c.meets(t, 1, b.AddrPort().String())
}

// An idle flow ends and gives its descriptor back; one that was answered lives longer.
func TestUDPIdle(t *testing.T) {
	u := &flows{}
	now := time.Now()
	for _, c := range []struct {
		answered bool
		ago      time.Duration
		over     bool
	}{{false, 29 * time.Second, false}, {false, 31 * time.Second, true}, {true, 100 * time.Second, false}, {true, 121 * time.Second, true}} {
		if got := u.left(&flow{last: now.Add(-c.ago), answered: c.answered}) <= 0; got != c.over {
			t.Errorf("answered %v, silent for %s: over %v", c.answered, c.ago, got)
		}
	}
}

// A Service at its bound gets no further clients, others do, and the listener's end
// gives everything back.
func TestUDPBound(t *testing.T) {
	r := newRelay(t, Params{MostOfOne: 3})
	b := udpServer(t, "127.0.0.1")
	tg := r.Target(frontend(b))
	l, err := r.Listen(tg, netip.MustParseAddrPort("127.0.0.1:0"), model.UDP)
	if err != nil {
		t.Fatal(err)
	}
	at := bound(t, l)
	for range 3 {
		newUDPClient(t, at).ask(t, 1)
	}
	c := newUDPClient(t, at)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if n := r.Counts(); n.OverService != 1 || n.Lost != 1 || n.Flows != 3 {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	other := frontend(b)
	other.Service.Name = "other"
	newUDPClient(t, open(t, r.Target(other), "127.0.0.1", model.UDP)).ask(t, 1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		r.budget.mu.Lock()
		defer r.budget.mu.Unlock()
		if n := r.budget.held[tg.service()]; n != 0 {
			return fmt.Errorf("%d descriptors are held", n)
		}
		return nil
	})
}
