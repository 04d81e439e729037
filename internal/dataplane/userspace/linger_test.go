package userspace

import (
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/addressplan"
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/test/patience"
)

// The route to the address of a Service that goes stays for its connections, which are
// then reset, and is done with when the last one has ended.
func TestRouteStaysForConnections(t *testing.T) {
	routes, err := link.OpenLocals()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"10.96.0.71", "fd00:10:96::71"} {
		d := newDriver(t, Params{Plan: addressplan.Plan{Own: true}, Routes: routes})
		at := netip.MustParseAddr(address)
		server, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(map[bool]netip.Addr{true: netip.MustParseAddr("127.0.0.1"), false: netip.IPv6Loopback()}[at.Is4()], 0)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close() })
		f := &model.Frontend{Service: model.ServiceKey{Namespace: "test", Name: "web"}, Kind: model.ClusterIP, Verdict: model.Forward,
			Key: model.FrontendKey{Family: model.FamilyOf(at), Addr: at, Port: 80, Protocol: model.TCP}}
		end := server.Addr().(*net.TCPAddr).AddrPort()
		f.Backends = []model.Backend{{Addr: end.Addr(), Port: end.Port(), Weight: 1}}
		var here, gone dataplane.Batch
		var route dataplane.Key
		d.Render(f, &model.NodeView{}, func(o dataplane.Object) {
			here.Ops = append(here.Ops, dataplane.Op{Key: o.Key, Want: o.Value})
			if o.Key.Kind == kindRoute {
				route = o.Key
			} else {
				gone.Ops = append(gone.Ops, dataplane.Op{Key: o.Key, Have: o.Value})
			}
		})
		do := func(b dataplane.Batch) {
			if _, err := d.Apply(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		do(here)
		if l := d.Linger(route); l != 0 {
			t.Errorf("without a connection the route stays for %s", l)
		}
		c, err := net.Dial("tcp", netip.AddrPortFrom(at, 80).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience.Of(30 * time.Second)))
		s, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		if l := d.Linger(route); l < 24*time.Hour {
			t.Errorf("with a connection the route stays for %s", l)
		}
		do(gone)
		for _, pair := range [][2]net.Conn{{c, s}, {s, c}} {
			if _, err := pair[0].Write([]byte("on")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(pair[1], make([]byte, 2)); err != nil {
				t.Fatalf("a connection after its Service: %v", err)
			}
		}
		drained := func() bool {
			list, err := d.Drained(t.Context(), []dataplane.Key{route, {Kind: kindReturn, ID: end.String() + "/TCP"}})
			return err == nil && slices.Equal(list, []dataplane.Key{route})
		}
		if drained() {
			t.Error("a route with a connection is done with")
		}
		_, _ = c.Close(), s.Close()
		for until := time.Now().Add(patience.Of(30 * time.Second)); !drained(); {
			if time.Now().After(until) {
				t.Fatal("a route without connections is not done with")
			}
			time.Sleep(patience.Pause(10 * time.Millisecond)) // between two questions: the relay tells nobody when it has closed
		}
	}
}
