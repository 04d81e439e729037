package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead/fairlead/internal/model"
)

// inside is a Service of many endpoints, ports or addresses. The cost of one changed endpoint depends on
// all of them, since policy computes a whole Service.
type inside struct {
	name                        string
	endpoints, ports, addresses int
	rounds                      int
}

func insides() []inside {
	return []inside{
		{"5000 endpoints", 5_000, 1, 1, 200},
		{"5000 endpoints, 3 addresses", 5_000, 1, 3, 200},
		{"50000 endpoints", 50_000, 1, 1, 200},
		{"500 ports x 12 addresses", 10, 500, 12, 10},
	}
}

// perSlice is how many endpoints the controller puts into a slice.
const perSlice = 100

func (s *inside) service() *corev1.Service {
	o := service(1)
	o.Spec.Ports = nil
	for i := range s.ports {
		o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p-%d", i), Protocol: corev1.ProtocolTCP, Port: int32(1000 + i)})
	}
	for i := 1; i < s.addresses; i++ {
		o.Spec.ExternalIPs = append(o.Spec.ExternalIPs, fmt.Sprintf("203.0.113.%d", i))
	}
	return o
}

// podsOfANode is how many endpoints may be on this node: kubelets run 110 pods, some are configured to
// run 250.
const podsOfANode = 250

// slice returns the slice that holds endpoint number first, with the endpoint moved for the round; round
// 0 is the start.
func (s *inside) slice(first, round int) *discoveryv1.EndpointSlice {
	o := slice(1, first, min(perSlice, s.endpoints-first))
	o.Name = fmt.Sprintf("svc-1-%d", first/perSlice)
	there := "node1"
	for i := range o.Endpoints {
		if first+i >= podsOfANode {
			o.Endpoints[i].NodeName = &there
		}
	}
	if round > 0 {
		o.Endpoints[0].Addresses[0] = fmt.Sprintf("172.16.%d.%d", round>>8&255, round&255)
	}
	o.Ports = nil
	proto := corev1.ProtocolTCP
	for i := range s.ports {
		name, port := fmt.Sprintf("p-%d", i), int32(8000+i)
		o.Ports = append(o.Ports, discoveryv1.EndpointPort{Name: &name, Port: &port, Protocol: &proto})
	}
	return o
}

// insideResult is the cost of one changed endpoint: CPU in milliseconds.
type insideResult struct {
	Mode, Inside           string
	CPU, Wall, Ops         float64
	State, Policy, Applied float64 // of the wall time: state; policy, render and diff; encode and kernel
}

func measureInside(mode string, s *inside) (*insideResult, error) {
	a, err := start(mode)
	if err != nil {
		return nil, err
	}
	a.mail.Put(model.Event{Host: &model.HostAddrs{Addrs: []model.HostAddr{{Prefix: netip.MustParsePrefix("192.168.50.2/24"), Link: "eth0"}}}})
	a.mail.Put(serviceEvent(a.conv, s.service()))
	for first := 0; first < s.endpoints; first += perSlice {
		a.mail.Put(sliceEvent(a.conv, s.slice(first, 0)))
	}
	a.mail.Put(model.Event{Synced: "bench"})
	for full := false; !full; {
		t, err := a.await()
		if err != nil {
			return nil, err
		}
		full = t.Full
	}
	r := &insideResult{Mode: mode, Inside: s.name}
	events := make([]model.Event, s.rounds) // created before the clock runs: the source's part is of one slice
	for i := range events {
		events[i] = sliceEvent(a.conv, s.slice(s.endpoints/2/perSlice*perSlice, i+1))
	}
	c0, t0, n := cpu(), time.Now(), float64(s.rounds)
	for _, ev := range events {
		a.mail.Put(ev)
		t, err := a.await()
		if err != nil {
			return nil, err
		}
		r.Ops += float64(t.Operations) / n
		r.State += ms(t.Phases[0]) / n
		r.Policy += ms(t.Phases[1]) / n
		r.Applied += ms(t.Phases[3]) / n
	}
	r.CPU, r.Wall = ms(cpu()-c0)/n, ms(time.Since(t0))/n
	return r, a.stop()
}

// runInside measures each kind of Service and prints it as a JSON line.
func runInside(mode, profile string) error {
	stop, err := startProfile(profile)
	if err != nil {
		return err
	}
	defer stop()
	for _, s := range insides() {
		r, err := measureInside(mode, &s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return err
		}
	}
	return nil
}
