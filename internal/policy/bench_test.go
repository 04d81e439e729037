package policy_test

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
	"github.com/fairlead/fairlead/internal/state"
)

// benchInputs is a Service with n endpoints in slices of 100, in scattered order
// as the controller writes them.
func benchInputs(i, n int) (model.Service, []*model.Slice) {
	svc := service(model.Service{Key: model.ServiceKey{Namespace: "bench", Name: fmt.Sprintf("svc-%d", i)}})
	svc.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)})}
	var out []*model.Slice
	for at := 0; at < n; at += 100 {
		sl := &model.Slice{Key: model.SliceKey{Namespace: "bench", Name: fmt.Sprintf("svc-%d-%03d", i, at/100)},
			Service: svc.Key, Family: model.IPv4, Ports: []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}}}
		for j := at; j < min(at+100, n); j++ {
			x := uint32(i*n+j) * 2654435761 >> 8 // spread
			sl.Endpoints = append(sl.Endpoints, model.Endpoint{Node: "n2", Ready: true, Serving: true,
				Addr: netip.AddrFrom4([4]byte{10, byte(x >> 16), byte(x >> 8), byte(x)})})
		}
		out = append(out, sl)
	}
	return svc, out
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{1, 10, 5000} {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			svc, sl := benchInputs(1, n)
			in := policy.Inputs{Service: &svc, Slices: sl, Node: policy.Self{Name: "n1", Zone: "a"}}
			b.ReportAllocs()
			for b.Loop() {
				if res := policy.Frontends(in); len(res.Frontends[0].Backends) != n {
					b.Fatal(len(res.Frontends[0].Backends))
				}
			}
		})
	}
}

// BenchmarkFullBuild is state and policy of a cold start at 50 000 Services of
// 10 endpoints. The project's budget for it is 1 s of CPU.
func BenchmarkFullBuild(b *testing.B) {
	const services = 50_000
	events := make([]model.Event, 0, 2*services)
	for i := range services {
		svc, sl := benchInputs(i, 10)
		events = append(events, model.Event{Service: &model.Keyed[model.ServiceKey, model.Service]{Key: svc.Key, Value: &svc}},
			model.Event{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: sl[0].Key, Value: sl[0]}})
	}
	b.ReportAllocs()
	before := cpu(b)
	for b.Loop() {
		st, claims, backends := state.New(), policy.NewClaims(), 0
		for k := range st.Apply(events).Dirty {
			svc, sl := st.Service(k)
			claims.Replace(nil, svc)
			res := policy.Frontends(policy.Inputs{Service: svc, Slices: sl, Node: policy.Self{Name: "n1"},
				Owns: func(f model.FrontendKey) bool { return claims.Owns(f, k) }})
			backends += len(res.Frontends[0].Backends)
		}
		if backends != 10*services {
			b.Fatal(backends)
		}
	}
	b.ReportMetric((cpu(b)-before).Seconds()/float64(b.N), "cpu-s/op")
}

// cpu is what the process has used: wall time says little on a busy machine.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Allocations of one decision: the addresses, the backends, the Frontend.
func TestDecideAllocates(t *testing.T) {
	svc, sl := benchInputs(1, 10)
	table := policy.NewServices()
	table.Update(svc.Key, &svc)
	if n := testing.AllocsPerRun(100, func() { table.Decide(svc.Key, sl) }); n > 4 {
		t.Errorf("%.0f allocations for a Service of one port and 10 endpoints, want at most 4", n)
	}
}

// BenchmarkChange is one decision after another, as the engine asks for them.
func BenchmarkChange(b *testing.B) {
	for _, c := range []struct{ endpoints, ports, addresses int }{{5_000, 1, 1}, {50_000, 1, 1}, {10, 500, 12}, {0, 20_000, 1}} {
		b.Run(fmt.Sprintf("endpoints=%d/ports=%d/addresses=%d", c.endpoints, c.ports, c.addresses), func(b *testing.B) {
			svc, sl := benchInputs(1, c.endpoints)
			for i := 1; i < c.ports; i++ {
				name := fmt.Sprint("p", i)
				svc.Ports = append(svc.Ports, model.ServicePort{Name: name, Protocol: model.TCP, Port: uint16(1000 + i)})
				for _, s := range sl {
					s.Ports = append(s.Ports, model.SlicePort{Name: name, Protocol: model.TCP, Port: uint16(8000 + i)})
				}
				if c.ports > 1000 {
					svc.Extras.PortRange += fmt.Sprintf("%s=%d-%d,", name, i, i)
				}
			}
			for i := 1; i < c.addresses; i++ {
				svc.ExternalIPs = append(svc.ExternalIPs, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}))
			}
			table := policy.NewServices()
			table.Update(svc.Key, &svc)
			b.ReportAllocs()
			before := cpu(b)
			for b.Loop() {
				table.Decide(svc.Key, sl)
			}
			b.ReportMetric((cpu(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
}
