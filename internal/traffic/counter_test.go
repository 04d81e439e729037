package traffic

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func key(name string) model.ServiceKey { return model.ServiceKey{Namespace: "shop", Name: name} }

// frontend makes one of a Service's; an invalid address is a NodePort.
func frontend(name string, k model.FrontendKey, endpoints ...string) model.Frontend {
	k.Family, k.Protocol = model.IPv4, model.TCP
	f := model.Frontend{Key: k, Service: key(name), Port: "http"}
	for _, e := range endpoints {
		f.Backends = append(f.Backends, model.Backend{Addr: at(e).Addr(), Port: at(e).Port()})
	}
	return f
}

func vip(name, to string, endpoints ...string) model.Frontend {
	return frontend(name, model.FrontendKey{Addr: at(to).Addr(), Port: at(to).Port()}, endpoints...)
}

// connections returns the rows of Service ports by the name of the Service, the common one under "".
func connections(r Rows) map[string]uint64 {
	out := map[string]uint64{"": r.Others.Connections}
	for _, s := range r.Services {
		out[s.Service.Name] = s.Connections
	}
	return out
}

func (c *Counter) connect(to, endpoint string, n uint64) {
	c.Happened(model.TCP, at(to), at(endpoint), Counts{Connections: n})
}

// TestWhoseAPacketIs: by address and port, by NodePort on the node's addresses and on localhost only, by range where no single port is.
func TestWhoseAPacketIs(t *testing.T) {
	c := New(10)
	c.NodePorts([]netip.Addr{netip.MustParseAddr("192.0.2.10")})
	c.Decided(key("web"), []model.Frontend{vip("web", "10.96.0.1:80"), frontend("web", model.FrontendKey{Port: 30080})})
	c.Decided(key("many"), []model.Frontend{frontend("many", model.FrontendKey{Addr: netip.MustParseAddr("10.96.0.1"), Port: 70, LastPort: 90})})
	for to, want := range map[string]string{
		"10.96.0.1:80": "web", "192.0.2.10:30080": "web", "127.0.0.1:30080": "web", "10.96.0.1:81": "many", "10.96.0.1:90": "many",
		"10.96.0.1:91": "", "192.0.2.11:30080": "", "10.96.0.2:80": "",
	} {
		before := connections(c.Rows(time.Time{}))
		c.connect(to, "10.1.0.1:8080", 1)
		after := connections(c.Rows(time.Time{}))
		for _, name := range []string{"web", "many", ""} {
			if grew := after[name] > before[name]; grew != (name == want && want != "") {
				t.Errorf("%s: %q grew: %t, want it counted for %q", to, name, grew, want)
			}
		}
	}
}

// TestAPlaceChangesHands: who takes an address over gets what comes next, in whatever order the two Services are told, and nothing is
// left of a Service that has gone.
func TestAPlaceChangesHands(t *testing.T) {
	for _, loserFirst := range []bool{true, false} {
		c := New(10)
		c.Decided(key("old"), []model.Frontend{vip("old", "10.96.0.1:80")})
		c.connect("10.96.0.1:80", "10.1.0.1:8080", 1)
		if loserFirst {
			c.Decided(key("old"), nil)
		}
		c.Decided(key("new"), []model.Frontend{vip("new", "10.96.0.1:80")})
		c.Decided(key("old"), nil)
		c.connect("10.96.0.1:80", "10.1.0.1:8080", 2)
		if got := connections(c.Rows(time.Time{})); got["new"] != 2 || len(got) != 2 {
			t.Errorf("loser first %t: %v", loserFirst, got)
		}
		if len(c.ports) != 1 || len(c.places) != 1 || len(c.of) != 1 || c.shown != 1 || c.endpoints != 1 {
			t.Errorf("%d ports, %d places, %d Services, %d and %d rows are kept", len(c.ports), len(c.places), len(c.of), c.shown, c.endpoints)
		}
		c.Decided(key("new"), nil)
		c.Settle()
		if len(c.ports)+len(c.places)+len(c.of)+c.shown+c.endpoints > 0 {
			t.Errorf("something is left: %+v", c)
		}
	}
}

// TestRowsAreBounded: the busiest have rows, nothing is lost or counted twice, and no row falls.
func TestRowsAreBounded(t *testing.T) {
	const services, most = 50, 3
	c := New(most)
	now := time.Unix(1_800_000_000, 0)
	for n := range services {
		name, to := fmt.Sprintf("s%d", n), fmt.Sprintf("10.96.0.%d:80", n)
		var endpoints []string
		for e := range 40 {
			endpoints = append(endpoints, fmt.Sprintf("10.1.%d.%d:80", n, e))
		}
		c.Decided(key(name), []model.Frontend{vip(name, to, endpoints...)})
	}
	sum, last := uint64(0), map[string]uint64{}
	for round := range 4 {
		for n := range services {
			busy := uint64(1)
			if n >= services-most { // the last ones, who come too late for a row
				busy = 100
			}
			for e := range 40 {
				c.connect(fmt.Sprintf("10.96.0.%d:80", n), fmt.Sprintf("10.1.%d.%d:80", n, e), busy)
				sum += busy
			}
		}
		now = now.Add(dealEvery)
		r := c.Rows(now)
		if len(r.Services) > most {
			t.Fatalf("%d rows, want %d", len(r.Services), most)
		}
		rows := 0
		for _, s := range r.Services {
			rows += len(s.Endpoints)
			all := s.NotNamed
			for i := range s.Endpoints {
				all.add(&s.Endpoints[i].Counts)
			}
			if all != s.Counts {
				t.Errorf("%s: its endpoints have %+v together, it has %+v", s.Service, all, s.Counts)
			}
		}
		if rows > most*EndpointsPerService {
			t.Errorf("%d rows of endpoints", rows)
		}
		got := connections(r)
		for name, n := range last {
			if now, there := got[name]; there && now < n {
				t.Errorf("round %d: the row of %q fell from %d to %d", round, name, n, now)
			}
		}
		last = got
	}
	for n := services - most; n < services; n++ {
		if last[fmt.Sprintf("s%d", n)] != 3*100*40 { // of the rounds in which it had its row
			t.Errorf("s%d has %d", n, last[fmt.Sprintf("s%d", n)])
		}
	}
	if got := last[""]; got != sum-most*40-3*most*100*40 { // but the first round of those who had rows then
		t.Errorf("the common row has %d of %d", got, sum)
	}
}

// TestEndpointsGo: the row of an endpoint goes with it, and one that is only not used keeps it.
func TestEndpointsGo(t *testing.T) {
	c := New(1)
	c.Decided(key("web"), []model.Frontend{vip("web", "10.96.0.1:80", "10.1.0.1:80", "10.1.0.2:80", "10.1.0.3:80")})
	for n := range 3 {
		c.connect("10.96.0.1:80", fmt.Sprintf("10.1.0.%d:80", n+1), 1)
	}
	now := vip("web", "10.96.0.1:80", "10.1.0.1:80")
	now.Others = []model.Other{{Addr: at("10.1.0.2:80"), Why: model.NotReady}}
	c.Decided(key("web"), []model.Frontend{now})
	r := c.Rows(time.Time{})
	if len(r.Services) != 1 || len(r.Services[0].Endpoints) != 2 || r.Services[0].Connections != 3 || c.endpoints != 2 {
		t.Errorf("%+v, %d rows", r, c.endpoints)
	}
}

// TestWhenAServiceRefused: the time of the last refusal is kept for a Service without a row as well, until it is gone. Drops and
// connections are none.
func TestWhenAServiceRefused(t *testing.T) {
	c := New(0)
	web := []model.Frontend{vip("web", "10.96.0.1:80")}
	c.Decided(key("web"), web)
	c.connect("10.96.0.1:80", "10.1.0.1:8080", 1)
	c.Happened(model.TCP, at("10.96.0.1:80"), netip.AddrPort{}, Counts{Dropped: 1})
	if got := c.RefusedAt(key("web")); !got.IsZero() {
		t.Errorf("refused at %v without a refusal", got)
	}
	begun := time.Now()
	c.HappenedTo(ServicePort{key("web"), "http"}, Counts{Refused: 1})
	if got := c.RefusedAt(key("web")); got.Before(begun) {
		t.Errorf("refused at %v, want after %v", got, begun)
	}
	c.Decided(key("web"), nil)
	c.Decided(key("web"), web)
	c.Settle()
	if got := c.RefusedAt(key("web")); !got.IsZero() {
		t.Errorf("a Service of the same name inherits %v", got)
	}
}
