package relay

import (
	"container/list"
	"fmt"
	"log/slog"
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

// A flow ends 30 s after its last datagram, one that became a stream after 120 s: an answer,
// and a datagram later than 2 s after the first one (nf_conntrack_proto_udp.c).
func TestUDPIdle(t *testing.T) {
	r := newRelay(t, Params{})
	for name, c := range map[string]struct {
		datagrams []time.Duration // since the flow began; answers are negative
		limit     time.Duration
	}{
		"never answered":             {[]time.Duration{0, 10 * time.Second, 20 * time.Second}, 30 * time.Second},
		"one exchange":               {[]time.Duration{0, -time.Second}, 30 * time.Second},
		"one exchange, slow":         {[]time.Duration{0, -5 * time.Second}, 30 * time.Second},
		"two exchanges within 2 s":   {[]time.Duration{0, -time.Second, time.Second, -2 * time.Second}, 30 * time.Second},
		"two exchanges":              {[]time.Duration{0, -time.Second, 3 * time.Second}, 120 * time.Second},
		"an answer of two datagrams": {[]time.Duration{0, -time.Second, -3 * time.Second, 4 * time.Second, -5 * time.Second}, 120 * time.Second},
	} {
		f := &flow{}
		r.lrus.enter(model.ServiceKey{Name: name}, f)
		f.began = time.Now().Add(-time.Hour)
		for _, at := range c.datagrams {
			f.touch(f.began.Add(max(at, -at)), at < 0)
		}
		if got := f.left() - time.Until(f.last); got.Round(time.Second) != c.limit {
			t.Errorf("%s: ends after %s, want %s", name, got, c.limit)
		}
		if !r.lrus.leave(model.ServiceKey{Name: name}, f) || len(r.lrus.by) != 0 {
			t.Errorf("%s: not removed", name)
		}
	}
}

// aged makes flows of a Service older, streams of all that a client asks over.
func aged(r *Relay, svc model.ServiceKey, by time.Duration, streams bool) {
	r.lrus.mu.Lock()
	l := r.lrus.by[svc]
	r.lrus.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range []*list.List{&l.brief, &l.streams} {
		for e := list.Front(); e != nil; e = e.Next() {
			f := e.Value.(*flow)
			f.began, f.last = f.began.Add(-by), f.last.Add(-by)
			f.answered = f.answered || streams
		}
	}
}

// The longest idle client makes room for a new one: of those that are no streams first, and
// a stream only after 30 s of silence. Until then the Service's further clients are turned
// away. Other Services' clients stay.
func TestUDPLongestIdleMakesRoom(t *testing.T) {
	for name, bound := range map[string]func(*Relay){
		"descriptors": func(r *Relay) { r.budget.most = 3 },
		"ports":       func(r *Relay) { r.ports.free = 6 },
	} {
		t.Run(name, func(t *testing.T) {
			var log lines
			r := newRelay(t, Params{Log: slog.New(slog.NewTextHandler(&log, nil))})
			bound(r)
			b := udpServer(t, "127.0.0.1")
			other := frontend(b)
			other.Service.Name = "other"
			stays := newUDPClient(t, open(t, r.Target(other), "127.0.0.1", model.UDP))
			before := stays.ask(t, 1)
			tg := r.Target(frontend(b))
			at := open(t, tg, "127.0.0.1", model.UDP)
			stream := newUDPClient(t, at)
			first := stream.ask(t, 1)
			aged(r, tg.service(), 3*time.Second, true)
			stream.meets(t, 1, first)
			for range 20 { // each gets an answer: one that is idle makes room
				newUDPClient(t, at).ask(t, 1)
			}
			stream.meets(t, 1, first)
			n := r.Counts()
			if held := r.ports.held[tg.service()]; n.Displaced < 17 || n.OverService+n.OverProcess+n.OverPorts != 0 || held > 3 {
				t.Errorf("%+v, %d ports held", n, held)
			}
			if !strings.Contains(log.String(), "evicted the longest idle UDP client") || !strings.Contains(log.String(), "test/web") {
				t.Errorf("the log says %q", log.String())
			}
			if got := stays.ask(t, 1); got != before {
				t.Errorf("another Service's client meets %q, then %q", before, got)
			}
		})
	}
}

// A Service whose clients are streams that are not idle takes no further one until a stream
// has been silent for 30 s.
func TestUDPStreamsStay(t *testing.T) {
	r := newRelay(t, Params{MostOfOne: 2})
	tg := r.Target(frontend(udpServer(t, "127.0.0.1")))
	at := open(t, tg, "127.0.0.1", model.UDP)
	clients := []udpClient{newUDPClient(t, at), newUDPClient(t, at)}
	var met []string
	for _, c := range clients {
		met = append(met, c.ask(t, 1))
	}
	aged(r, tg.service(), 3*time.Second, true)
	for i, c := range clients {
		c.meets(t, 1, met[i])
	}
	late := newUDPClient(t, at)
	_, _ = late.Write([]byte("x"))
	eventually(t, func() error {
		if n := r.Counts(); n.OverService != 1 || n.Lost != 1 || n.Flows != 2 || n.Displaced != 0 {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	aged(r, tg.service(), time.Minute, true)
	clients[0].meets(t, 1, met[0])
	late.ask(t, 1)
	clients[0].meets(t, 1, met[0])
	if n := r.Counts(); n.Displaced != 1 {
		t.Errorf("%+v", n)
	}
}

// The listener's end returns what its clients held, also of those that made room for others.
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
	for range 5 {
		newUDPClient(t, at).ask(t, 1)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		r.budget.mu.Lock()
		defer r.budget.mu.Unlock()
		r.ports.mu.Lock()
		defer r.ports.mu.Unlock()
		r.lrus.mu.Lock()
		defer r.lrus.mu.Unlock()
		if len(r.budget.held)+len(r.ports.held)+len(r.lrus.by) != 0 {
			return fmt.Errorf("descriptors %v, ports %v, flows %v are held", r.budget.held, r.ports.held, r.lrus.by)
		}
		return nil
	})
}
