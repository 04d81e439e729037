package policy_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// TestReasons: whatever is not used, or not as somebody may think, has a reason.
func TestReasons(t *testing.T) {
	local := model.Service{ExternalLocal: true, Ports: nodePort()}
	for _, c := range []struct {
		name  string
		svc   model.Service
		eps   []string
		notes []string // of the port http in IPv4
		whys  []string // of the first Frontend
	}{
		{name: "all is well", eps: []string{"10.1.0.1"}},
		{name: "no slice", notes: []string{"no_endpoints: no EndpointSlice belongs to the Service: does it have a selector?"}},
		{name: "only the other family", eps: []string{"fd00::1"}, notes: []string{"no_endpoints: no EndpointSlice of IPv4 belongs to the Service"}},
		{name: "one, not ready", eps: []string{"10.1.0.1 unready"},
			notes: []string{"none_ready: the only endpoint is not ready"}, whys: []string{"10.1.0.1:8080 not ready"}},
		{name: "none of two", eps: []string{"10.1.0.1 unready", "10.1.0.2 dying"},
			notes: []string{"none_ready: none of 2 endpoints is ready"}, whys: []string{"10.1.0.1:8080 not ready", "10.1.0.2:8080 terminating and not serving"}},
		{name: "ending ones are left out", eps: []string{"10.1.0.1", "10.1.0.2 draining"}, whys: []string{"10.1.0.2:8080 terminating, and others are ready"}},
		{name: "only ending ones", eps: []string{"10.1.0.1 draining"},
			notes: []string{"only_terminating: no endpoint is ready: terminating endpoints that still serve are used"}},
		{name: "zones", eps: []string{"10.1.0.1 hz:a", "10.1.0.2 hz:b"}, notes: []string{`hints_used: zone hints name this node's zone "a"`},
			whys: []string{"10.1.0.2:8080 the topology hints send this node's clients to other endpoints"}},
		{name: "a hint is missing", eps: []string{"10.1.0.1 hz:a", "10.1.0.2"}, notes: []string{"hints_ignored: zone hints not used: endpoint 10.1.0.2 has no zone hint"}},
		{name: "local, none here", svc: local, eps: []string{"10.1.0.1@n2"},
			notes: []string{"none_local: externalTrafficPolicy is Local, and no usable endpoint is on this node"}},
		{name: "internal local", svc: model.Service{InternalLocal: true}, eps: []string{"10.1.0.1@n1", "10.1.0.2@n2"},
			whys: []string{"10.1.0.2:8080 on another node, and the traffic policy is Local"}},
		{name: "weight 0", svc: model.Service{Extras: model.Extras{Weights: "10.1.0.2=0"}}, eps: []string{"10.1.0.1", "10.1.0.2"},
			whys: []string{"10.1.0.2:8080 its weight is 0"}},
		{name: "every weight is 0", svc: model.Service{Extras: model.Extras{Weights: "10.1.0.1=0"}}, eps: []string{"10.1.0.1"},
			notes: []string{"weights_ignored: weights not used: every usable endpoint has weight 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			svc := service(c.svc)
			res := frontends(&svc, c.eps)
			var notes, whys []string
			for _, n := range res.Notes {
				notes = append(notes, n.Kind.String()+": "+n.Text)
			}
			for _, o := range res.Frontends[0].Others {
				whys = append(whys, fmt.Sprint(o.Addr, " ", o.Why))
			}
			if d := cmp.Diff([][]string{c.notes, c.whys}, [][]string{notes, whys}); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// TestReasonsOfSlices: slices without endpoints, and without the port.
func TestReasonsOfSlices(t *testing.T) {
	svc := service(model.Service{})
	for want, sl := range map[string]*model.Slice{
		"its EndpointSlices are empty: no pod matches the selector":                                     {Family: model.IPv4},
		`no EndpointSlice has a port named "http" of protocol TCP: does every pod have the targetPort?`: {Family: model.IPv4, Ports: []model.SlicePort{{Name: "web", Protocol: model.TCP, Port: 80}}, Endpoints: []model.Endpoint{endpoint("10.1.0.1")}},
		"no EndpointSlice belongs to the Service: does it have a selector?":                             nil,
	} {
		in := policy.Inputs{Service: &svc, Node: policy.Self{Name: "n1"}}
		if sl != nil {
			in.Slices = []*model.Slice{sl}
		}
		if got := policy.Frontends(in).Notes; len(got) != 1 || got[0].Text != want {
			t.Errorf("got %v, want %q", got, want)
		}
	}
}

// TestLostClaimsAreNoted, for they are counted with the other notes.
func TestLostClaimsAreNoted(t *testing.T) {
	s := policy.NewServices()
	old, young := service(model.Service{Created: 1}), service(model.Service{Created: 2})
	young.Key.Name = "other"
	s.Update(old.Key, &old)
	s.Update(young.Key, &young)
	notes := s.Decide(young.Key, nil).Notes
	if len(notes) == 0 || notes[len(notes)-1].Kind != policy.ClaimLost {
		t.Errorf("notes %v", notes)
	}
	key := model.FrontendKey{Family: model.IPv4, Protocol: model.TCP, Addr: old.ClusterIPs[0], Port: 80}
	if holder, losers, held := s.Holder(key); !held || holder != old.Key || len(losers) != 1 || losers[0] != young.Key {
		t.Errorf("%v has it, %v do not (%v)", holder, losers, held)
	}
	key.Port = 81
	if holder, _, held := s.Holder(key); held {
		t.Errorf("%v has a port that nobody asks for", holder)
	}
}
