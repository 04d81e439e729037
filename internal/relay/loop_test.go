package relay

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
)

// An endpoint that is the agent's own socket gets no client if it leads back to the Service
// that asks, directly or by other Services: one connection stays one. One that leads
// elsewhere is served, and so are a Service's other endpoints.
func TestEndpointsThatLeadBack(t *testing.T) {
	at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port) }
	for name, c := range map[string]struct {
		to    map[uint16][]uint16 // by a Service's port: the ports of its endpoints; 0 is a server
		asked uint16
		well  bool
		most  int64 // connections and UDP clients
		loops bool
	}{
		"itself":             {map[uint16][]uint16{20201: {20201}}, 20201, false, 1, true},
		"two Services":       {map[uint16][]uint16{20201: {20202}, 20202: {20201}}, 20201, false, 1, true},
		"three Services":     {map[uint16][]uint16{20201: {20202}, 20202: {20203}, 20203: {20201}}, 20201, false, 1, true},
		"a loop behind it":   {map[uint16][]uint16{20201: {20202}, 20202: {20202}}, 20201, false, 2, true},
		"another Service":    {map[uint16][]uint16{20201: {20202}, 20202: {0}}, 20201, true, 2, false},
		"itself, and others": {map[uint16][]uint16{20201: {20201, 0}}, 20201, true, 1, false},
	} {
		for _, p := range []model.Protocol{model.TCP, model.UDP} {
			t.Run(fmt.Sprint(name, " ", p), func(t *testing.T) {
				told := make(chan model.ServiceKey, 100)
				r := newRelay(t, Params{Descriptors: 400, OnLoop: func(svc model.ServiceKey, _ netip.AddrPort, _ error) { told <- svc }})
				server := named(t, "127.0.0.1")
				if p == model.UDP {
					server = udpServer(t, "127.0.0.1")
				}
				for port, list := range c.to {
					f := abused(fmt.Sprint("s", port), server)
					f.Backends = nil
					for _, n := range list {
						if n == 0 {
							f.Backends = append(f.Backends, server)
						} else {
							f.Backends = append(f.Backends, backend(at(n)))
						}
					}
					l, err := r.Listen(r.Target(f), at(port), p)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = l.Close() })
				}
				if p == model.UDP {
					client := newUDPClient(t, at(c.asked))
					if c.well {
						client.ask(t, 1)
					} else {
						_, _ = client.Write([]byte("x"))
					}
				} else if got, err := ask(t, "127.0.0.1", at(c.asked)); c.well != (err == nil) || c.well && got != answered(server) {
					t.Fatalf("%q, %v", got, err)
				}
				eventually(t, func() error {
					if n := r.Counts(); c.loops && n.Loops == 0 {
						return fmt.Errorf("%+v", n)
					}
					return nil
				})
				if n := r.Counts(); n.Accepted > c.most {
					t.Errorf("one client became %d", n.Accepted)
				}
				if c.loops && (<-told).Name == "" {
					t.Error("no Service is named")
				}
			})
		}
	}
}
