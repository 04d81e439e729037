package policy_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// registry drives Claims as the engine does and knows who is present.
type registry struct {
	claims *policy.Claims
	now    map[model.ServiceKey]*model.Service
}

func newRegistry() *registry {
	return &registry{claims: policy.NewClaims(), now: map[model.ServiceKey]*model.Service{}}
}

// put adds or replaces a Service and gives the names of those affected.
func (r *registry) put(s model.Service) string {
	s = service(s)
	return r.replace(s.Key, &s)
}

func (r *registry) replace(k model.ServiceKey, s *model.Service) string {
	affected := r.claims.Replace(r.now[k], s)
	if s == nil {
		delete(r.now, k)
	} else {
		r.now[k] = s
	}
	slices.SortFunc(affected, model.ServiceKey.Compare)
	var names []string
	for _, a := range affected {
		names = append(names, a.Name)
	}
	return strings.Join(names, " ")
}

// holder names the Service that owns a key; "" = nobody.
func (r *registry) holder(k model.FrontendKey) (out string) {
	for name := range r.now {
		if r.claims.Owns(k, name) {
			out += name.Name
		}
	}
	return out
}

func named(name string) model.ServiceKey {
	return model.ServiceKey{Namespace: "default", Name: name}
}

func external(name string, created int64, ip string) model.Service {
	return model.Service{Key: named(name), Created: created, ClusterIPs: addrs("10.96.1." + name[1:]), ExternalIPs: addrs(ip)}
}

var shared = model.FrontendKey{Family: model.IPv4, Protocol: model.TCP, Addr: addrs("1.2.3.4")[0], Port: 80}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestClaimsOlderWins(t *testing.T) {
	r := newRegistry()
	expect(t, "first", r.put(external("s2", 200, "1.2.3.4")), "")
	expect(t, "holder", r.holder(shared), "s2")
	expect(t, "affected by a younger one", r.put(external("s3", 300, "1.2.3.4")), "")
	expect(t, "holder", r.holder(shared), "s2")
	expect(t, "affected by an older one", r.put(external("s1", 100, "1.2.3.4")), "s2 s3")
	expect(t, "holder", r.holder(shared), "s1")
	lost := r.claims.Lost(r.now[named("s3")])
	if len(lost) != 1 || lost[0].String() != "Service default/s3: spec.externalIPs: 1.2.3.4:80/TCP is already taken by Service default/s1" {
		t.Errorf("lost: %v", lost)
	}
	if l := r.claims.Lost(r.now[named("s1")]); l != nil {
		t.Errorf("the winner lost %v", l)
	}
}

func TestClaimsLoserTakesOver(t *testing.T) {
	r := newRegistry()
	r.put(external("s1", 100, "1.2.3.4"))
	r.put(external("s2", 200, "1.2.3.4"))
	r.put(external("s3", 300, "1.2.3.4"))
	expect(t, "affected as the winner moves", r.put(external("s1", 100, "1.2.3.9")), "s2 s3")
	expect(t, "holder", r.holder(shared), "s2")
	expect(t, "affected as the next goes", r.replace(named("s2"), nil), "s3")
	expect(t, "holder", r.holder(shared), "s3")
	expect(t, "affected as the last goes", r.replace(named("s3"), nil), "")
	expect(t, "holder", r.holder(shared), "")
}

func TestClaimsKinds(t *testing.T) {
	nodePort := func(name string, created int64, proto model.Protocol) model.Service {
		return model.Service{Key: named(name), Created: created, ClusterIPs: addrs("10.96.1." + name[1:]),
			Ports: []model.ServicePort{{Protocol: proto, Port: 80, NodePort: 30080}}}
	}
	t.Run("ClusterIP beats an older external IP (CVE-2020-8554)", func(t *testing.T) {
		r := newRegistry()
		r.put(external("s1", 100, "1.2.3.4"))
		expect(t, "affected", r.put(model.Service{Key: named("s2"), Created: 200, ClusterIPs: addrs("1.2.3.4")}), "s1")
		expect(t, "holder", r.holder(shared), "s2")
	})
	balanced := func(name string, created int64, ip string) model.Service {
		return model.Service{Key: named(name), Created: created, ClusterIPs: addrs("10.96.1." + name[1:]), LoadBalancerIPs: addrs(ip)}
	}
	t.Run("load balancer IP beats an older external IP", func(t *testing.T) {
		r := newRegistry()
		r.put(external("s1", 100, "1.2.3.4"))
		expect(t, "affected", r.put(balanced("s2", 200, "1.2.3.4")), "s1")
		expect(t, "holder", r.holder(shared), "s2")
		expect(t, "lost", r.claims.Lost(r.now[named("s1")])[0].Field, "spec.externalIPs")
		expect(t, "affected as the load balancer's goes", r.replace(named("s2"), nil), "s1")
		expect(t, "holder", r.holder(shared), "s1")
	})
	t.Run("load balancer IP with a wide external range beside it", func(t *testing.T) {
		r := newRegistry()
		wide := external("s1", 100, "1.2.3.4")
		wide.Extras.PortRange = "1-65535"
		r.put(wide)
		r.put(balanced("s2", 200, "1.2.3.4"))
		expect(t, "holder", r.holder(shared), "s2")
	})
	t.Run("ClusterIP beats an older load balancer IP", func(t *testing.T) {
		r := newRegistry()
		r.put(balanced("s1", 100, "1.2.3.4"))
		r.put(model.Service{Key: named("s2"), Created: 200, ClusterIPs: addrs("1.2.3.4")})
		expect(t, "holder", r.holder(shared), "s2")
	})
	t.Run("of two load balancers the older", func(t *testing.T) {
		r := newRegistry()
		r.put(balanced("s1", 200, "1.2.3.4"))
		r.put(balanced("s2", 100, "1.2.3.4"))
		expect(t, "holder", r.holder(shared), "s2")
	})
	t.Run("NodePort", func(t *testing.T) {
		r := newRegistry()
		r.put(nodePort("s1", 100, model.TCP))
		r.put(nodePort("s2", 50, model.TCP))
		r.put(nodePort("s3", 10, model.UDP)) // another protocol is another key
		key := model.FrontendKey{Family: model.IPv4, Protocol: model.TCP, Port: 30080}
		expect(t, "holder", r.holder(key), "s2")
		expect(t, "lost", r.claims.Lost(r.now[named("s1")])[0].Field, "spec.ports.nodePort")
	})
	t.Run("same age: by name", func(t *testing.T) {
		r := newRegistry()
		r.put(external("s2", 100, "1.2.3.4"))
		r.put(external("s1", 100, "1.2.3.4"))
		expect(t, "holder", r.holder(shared), "s1")
	})
	t.Run("one Service names a key twice", func(t *testing.T) {
		r := newRegistry()
		s := external("s1", 100, "1.2.3.4")
		s.LoadBalancerIPs = addrs("1.2.3.4")
		r.put(s)
		r.put(external("s2", 200, "1.2.3.4"))
		r.put(model.Service{Key: s.Key, Created: 100, ClusterIPs: s.ClusterIPs})
		expect(t, "holder", r.holder(shared), "s2")
	})
	t.Run("not proxied any more", func(t *testing.T) {
		r := newRegistry()
		r.put(external("s1", 100, "1.2.3.4"))
		r.put(external("s2", 200, "1.2.3.4"))
		s := service(external("s1", 100, "1.2.3.4"))
		s.Proxied = false
		expect(t, "affected", r.replace(s.Key, &s), "s2")
		expect(t, "holder", r.holder(shared), "s2")
	})
}

// Whoever comes and goes in whatever order, the holders are those of a table
// made from who is left; and whoever's holding changed was said to be affected.
func TestClaimsKeepNoHistory(t *testing.T) {
	ips := []string{"1.2.3.4", "1.2.3.5", "10.96.1.2"}
	rng := rand.New(rand.NewPCG(1, 2))
	r := newRegistry()
	keys := func() (out []model.FrontendKey) {
		for _, ip := range append(ips, "10.96.1.1", "10.96.1.3", "10.96.1.4") {
			out = append(out, model.FrontendKey{Family: model.IPv4, Protocol: model.TCP, Addr: addrs(ip)[0], Port: 80})
		}
		return out
	}()
	for i := range 3000 {
		before := map[model.FrontendKey]string{}
		for _, k := range keys {
			before[k] = r.holder(k)
		}
		name := "s" + string(rune('1'+rng.IntN(4)))
		var affected string
		if rng.IntN(3) == 0 {
			affected = r.replace(named(name), nil)
		} else {
			s := external(name, int64(rng.IntN(3)), ips[rng.IntN(len(ips))])
			s.LoadBalancerIPs = addrs(ips[rng.IntN(len(ips))])
			affected = r.put(s)
		}
		fresh := newRegistry()
		for k, s := range r.now {
			fresh.replace(k, s)
		}
		for _, k := range keys {
			now := r.holder(k)
			if want := fresh.holder(k); now != want {
				t.Fatalf("step %d: %v is held by %q, from scratch by %q", i, k, now, want)
			}
			for _, who := range []string{before[k], now} {
				if before[k] != now && who != "" && who != name && !strings.Contains(affected, who) {
					t.Fatalf("step %d: %v went from %q to %q, affected only %q", i, k, before[k], now, affected)
				}
			}
		}
	}
}

func TestLostKeys(t *testing.T) {
	old, now := service(external("s1", 1, "1.2.3.4")), service(external("s1", 1, "1.2.3.5"))
	if got := policy.LostKeys(&old, &now); len(got) != 1 || got[0] != shared {
		t.Errorf("moved: %v", got)
	}
	if got := policy.LostKeys(&old, nil); len(got) != 2 {
		t.Errorf("gone: %v", got)
	}
	if got := policy.LostKeys(nil, &now); got != nil {
		t.Errorf("new: %v", got)
	}
	if got := policy.LostKeys(&old, &old); got != nil {
		t.Errorf("same: %v", got)
	}
}
