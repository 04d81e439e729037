package convert

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead/fairlead/internal/model"
)

// FuzzAnnotations reads arbitrary values of fairlead.dev annotations: the results
// are within their bounds, and each rejected value is reported.
func FuzzAnnotations(f *testing.F) {
	for _, name := range []string{"weights", "consistent-hash", "port-range", "nodeport-source-ranges", "dns-park", "accelerate", "offload", "proxy-protocol", "source-address", "endpoint-grace", "max-connections", "x"} {
		for _, value := range []string{"", ",", "client-ip", "10.0.0.1=3, web-0=1000", "1-65535,web=80-90", "10.0.0.0/8,::/0", "4s", "-1", "on"} {
			f.Add(name, value)
		}
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		r := &report{kind: "Service", name: "x"}
		e := extras(map[string]string{annotationPrefix + name: value}, r)
		problems := r.done()
		if e.DNSPark != nil && (*e.DNSPark < 0 || *e.DNSPark > maxPark) {
			t.Errorf("park %s", *e.DNSPark)
		}
		if g := e.Relay.EndpointGrace; g != 0 && g != -1 && (g < time.Second || g > maxGrace) || e.Relay.MaxConnections < 0 {
			t.Errorf("of userspace mode %+v", e.Relay)
		}
		for _, p := range e.NodePortRanges {
			if !p.IsValid() || p != p.Masked() {
				t.Errorf("range %v", p)
			}
		}
		if len(problems) > maxProblems+1 {
			t.Errorf("%d problems", len(problems))
		}
		if value != "" && name == "x" && len(problems) == 0 {
			t.Error("an unknown annotation is not told")
		}
		if again := extras(map[string]string{annotationPrefix + "weights": e.Weights}, &report{}); e.Weights != "" && again.Weights != e.Weights {
			t.Errorf("weights %q become %q", e.Weights, again.Weights)
		}
	})
}

// FuzzSlice reads whatever JSON says that it is an EndpointSlice: what comes of
// it is what model promises.
func FuzzSlice(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"name":"a-1","labels":{"kubernetes.io/service-name":"a"}},"addressType":"IPv4","ports":[{"port":80}],"endpoints":[{"addresses":["10.0.0.1"]}]}`,
		`{"metadata":{"labels":{"kubernetes.io/service-name":"a"}},"addressType":"IPv6","endpoints":[{"addresses":["fd00::1","10.0.0.1"],"hints":{"forZones":[{"name":"z"}]}},{}]}`,
		`{"addressType":"FQDN","endpoints":[{"addresses":["example.com"]}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var o discoveryv1.EndpointSlice
		if json.Unmarshal(text, &o) != nil {
			return
		}
		s, problems := New().Slice(&o)
		if s == nil {
			if len(problems) == 0 && o.AddressType != discoveryv1.AddressTypeFQDN {
				t.Error("a slice is dropped without a word")
			}
			return
		}
		seen := map[netip.Addr]bool{}
		for _, e := range s.Endpoints {
			if !e.Addr.IsValid() || e.Addr.Zone() != "" || model.FamilyOf(e.Addr) != s.Family || seen[e.Addr] {
				t.Errorf("endpoint %v of %v", e.Addr, s.Family)
			}
			seen[e.Addr] = true
		}
		for _, p := range s.Ports {
			if p.Port == 0 {
				t.Error("port 0")
			}
		}
		if again, _ := New().Slice(&o); !again.Equal(s) {
			t.Error("read again it is another")
		}
	})
}

// FuzzService does the same for Services.
func FuzzService(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a"},"spec":{"type":"NodePort","clusterIP":"10.96.0.1","ports":[{"port":80,"nodePort":30080},{"name":"x","port":80}]}}`))
	f.Add([]byte(`{"spec":{"type":"LoadBalancer","clusterIPs":["10.96.0.1","fd00::1"],"externalIPs":["::ffff:1.2.3.4"],"loadBalancerSourceRanges":["x"]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var o corev1.Service
		if json.Unmarshal(text, &o) != nil {
			return
		}
		s, _ := New().Service(&o)
		type number struct {
			port     uint16
			protocol model.Protocol
		}
		names, ports := map[string]bool{}, map[number]bool{}
		for _, p := range s.Ports {
			if p.Port == 0 || names[p.Name] || ports[number{p.Port, p.Protocol}] {
				t.Errorf("port %+v of %+v", p, s.Ports)
			}
			names[p.Name], ports[number{p.Port, p.Protocol}] = true, true
		}
		if s.SourceGuarded && len(s.SourceRanges) == 0 {
			t.Error("a guarded Service stands open")
		}
		if again, _ := New().Service(&o); !again.Equal(s) {
			t.Error("read again it is another")
		}
	})
}
