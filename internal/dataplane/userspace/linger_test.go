package userspace

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/addressplan"
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/test/patience"
)

// departed is a Service at an address of its own that can go while it has connections.
type departed struct {
	*testing.T
	d      *Driver
	at     netip.Addr
	server *net.TCPListener
	gone   dataplane.Batch // takes away what keeps no connection alive
	route  dataplane.Key
}

// bothFamilies runs a test with a Service that is there.
func bothFamilies(t *testing.T, test func(*departed)) {
	routes, err := link.OpenLocals()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"10.96.0.71", "fd00:10:96::71"} {
		t.Run(address, func(t *testing.T) {
			s := &departed{T: t, at: netip.MustParseAddr(address)}
			s.d = newDriver(t, Params{Plan: addressplan.Plan{Own: true}, Routes: routes, Talks: link.Talks})
			s.appear()
			test(s)
		})
	}
}

func (s *departed) appear() {
	s.Helper()
	loopback := map[bool]netip.Addr{true: netip.MustParseAddr("127.0.0.1"), false: netip.IPv6Loopback()}[s.at.Is4()]
	var err error
	if s.server, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(loopback, 0))); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = s.server.Close() })
	f := &model.Frontend{Service: model.ServiceKey{Namespace: "test", Name: "web"}, Kind: model.ClusterIP, Verdict: model.Forward,
		Key: model.FrontendKey{Family: model.FamilyOf(s.at), Addr: s.at, Port: 80, Protocol: model.TCP}}
	f.Backends = []model.Backend{{Addr: loopback, Port: s.server.Addr().(*net.TCPAddr).AddrPort().Port(), Weight: 1}}
	var here dataplane.Batch
	s.d.Render(f, &model.NodeView{}, func(o dataplane.Object) {
		here.Ops = append(here.Ops, dataplane.Op{Key: o.Key, Want: o.Value})
		if o.Key.Kind == kindRoute {
			s.route = o.Key
		} else {
			s.gone.Ops = append(s.gone.Ops, dataplane.Op{Key: o.Key, Have: o.Value})
		}
	})
	s.apply(here)
}

func (s *departed) apply(b dataplane.Batch) {
	s.Helper()
	if _, err := s.d.Apply(s.Context(), b); err != nil {
		s.Fatal(err)
	}
}

// connect returns both ends of a connection, whose client is d.
func (s *departed) connect(d net.Dialer) (client, server net.Conn) {
	s.Helper()
	c, err := d.DialContext(s.Context(), "tcp", netip.AddrPortFrom(s.at, 80).String())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close() })
	if server, err = s.server.Accept(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = server.Close() })
	for _, c := range []net.Conn{c, server} {
		_ = c.SetDeadline(time.Now().Add(patience.Of(time.Minute)))
	}
	return c, server
}

func (s *departed) drained() bool {
	list, err := s.d.Drained(s.Context(), []dataplane.Key{s.route})
	return err == nil && slices.Equal(list, []dataplane.Key{s.route})
}

// until polls for a condition for which there is no notification.
func (s *departed) until(what string, holds func() bool) {
	s.Helper()
	for end := time.Now().Add(patience.Of(time.Minute)); !holds(); {
		if time.Now().After(end) {
			s.Fatal("not within a minute: " + what)
		}
		time.Sleep(patience.Pause(10 * time.Millisecond)) // between two reads of the kernel's sockets, whose end causes no notification
	}
}

// The route to the address of a Service that goes stays for its connections, which go on,
// and is done with when the last one has ended.
func TestRouteStaysForConnections(t *testing.T) {
	bothFamilies(t, func(s *departed) {
		if l := s.d.Linger(s.route); l < 24*time.Hour || !s.drained() {
			s.Errorf("a route that no connection needs: it may stay for %s, and is done with: %v", l, s.drained())
		}
		c, server := s.connect(net.Dialer{})
		s.apply(s.gone)
		for _, pair := range [][2]net.Conn{{c, server}, {server, c}} {
			if _, err := pair[0].Write([]byte("on")); err != nil {
				s.Fatal(err)
			}
			if _, err := io.ReadFull(pair[1], make([]byte, 2)); err != nil {
				s.Fatalf("a connection after its Service: %v", err)
			}
		}
		if s.drained() {
			s.Error("a route with a connection is done with")
		}
		_, _ = c.Close(), server.Close()
		s.until("the route is done with", s.drained)
	})
}

// The last bytes of a connection that both ends have closed need the route as well: a client
// that reads slowly gets them.
func TestRouteStaysForLastBytes(t *testing.T) {
	bothFamilies(t, func(s *departed) {
		c, server := s.connect(net.Dialer{Control: func(_, _ string, c syscall.RawConn) (failed error) {
			err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) })
			return errors.Join(err, failed)
		}})
		const size = 12 << 10 // more than the client's kernel takes, less than ours keeps
		if _, err := server.Write(make([]byte, size)); err != nil {
			s.Fatal(err)
		}
		_, _ = server.Close(), c.(*net.TCPConn).CloseWrite()
		s.until("the agent has closed it", func() bool { return s.d.p.Relay.Counts().Connections == 0 })
		s.apply(s.gone)
		if s.drained() {
			s.Error("the route is done with while the last bytes are under way")
		}
		if got, err := io.ReadAll(c); err != nil || len(got) != size {
			s.Errorf("the client reads %d bytes of %d, %v", len(got), size, err)
		}
		_ = c.Close()
		s.until("the route is done with", s.drained)
	})
}

// The rule for an endpoint's answers is needed by those alone who speak to it from the ports
// of clients' names: this protocol's, and this endpoint's.
func TestRuleStaysForAnswers(t *testing.T) {
	talks := []link.Talk{
		{Own: netip.MustParseAddrPort("172.18.0.9:20000"), Peer: netip.MustParseAddrPort("10.244.1.1:80"), Protocol: 6},
		{Own: netip.MustParseAddrPort("[fd00::9]:32767"), Peer: netip.MustParseAddrPort("[fd00::1]:80"), Protocol: 17},
		{Own: netip.MustParseAddrPort("172.18.0.9:32768"), Peer: netip.MustParseAddrPort("10.244.1.2:80"), Protocol: 6},
		{Own: netip.MustParseAddrPort("172.18.0.9:19999"), Peer: netip.MustParseAddrPort("10.244.1.3:80"), Protocol: 6},
	}
	d := newDriver(t, Params{Talks: func() ([]link.Talk, error) { return talks, nil }})
	var asked, want []dataplane.Key
	for id, needed := range map[string]bool{"10.244.1.1:80/TCP": true, "10.244.1.1:80/UDP": false, "10.244.1.1:81/TCP": false, "10.244.1.2:80/TCP": false,
		"10.244.1.3:80/TCP": false, "[fd00::1]:80/UDP": true, "[fd00::1]:80/TCP": false} {
		s, err := server(id)
		if err != nil {
			t.Fatal(err)
		}
		asked = append(asked, returnKey(s))
		if !needed {
			want = append(want, returnKey(s))
		}
	}
	if got, err := d.Drained(t.Context(), asked); err != nil || !slices.Equal(got, want) {
		t.Errorf("done with are %v, want %v; %v", got, want, err)
	}
	if l := d.Linger(asked[0]); l < 24*time.Hour {
		t.Errorf("a rule may stay for %s", l)
	}
}

// When the kernel does not answer for once, nothing is done with: connections may need it.
func TestDrainedWithoutAnswer(t *testing.T) {
	unanswered := errors.New("the kernel is busy, says the test")
	d := newDriver(t, Params{Talks: func() ([]link.Talk, error) { return nil, unanswered }})
	if list, err := d.Drained(t.Context(), []dataplane.Key{{Kind: kindRoute, ID: "10.96.0.1"}}); !errors.Is(err, unanswered) || len(list) > 0 {
		t.Errorf("done with are %v, %v", list, err)
	}
}

// Where the kernel tells of no connections, what they may need goes after a time.
func TestLingerBlind(t *testing.T) {
	d := newDriver(t, Params{LingerBlind: time.Minute})
	for kind, want := range map[dataplane.Kind]time.Duration{kindRoute: time.Minute, kindReturn: time.Minute, kindTarget: 0, kindSocket: 0, kindWhere: 0} {
		if l := d.Linger(dataplane.Key{Kind: kind}); l != want {
			t.Errorf("kind %d stays for %s, want %s", kind, l, want)
		}
	}
	if list, err := d.Drained(t.Context(), []dataplane.Key{{Kind: kindRoute}}); err != nil || len(list) != 0 {
		t.Errorf("done with are %v, %v", list, err)
	}
}
