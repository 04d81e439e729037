package state_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/state"
)

func key(name string) model.ServiceKey { return model.ServiceKey{Namespace: "default", Name: name} }

func svc(name string) model.Event {
	return svcWith(name, func(*model.Service) {})
}

func svcWith(name string, change func(*model.Service)) model.Event {
	s := &model.Service{Key: key(name), Proxied: true}
	change(s)
	return model.Event{Service: &model.Keyed[model.ServiceKey, model.Service]{Key: s.Key, Value: s}}
}

func noSvc(name string) model.Event {
	return model.Event{Service: &model.Keyed[model.ServiceKey, model.Service]{Key: key(name)}}
}

// slice makes a slice of a Service; hints are zones, "" for none.
func slice(name, service string, hints ...string) model.Event {
	sl := &model.Slice{Key: model.SliceKey(key(name)), Service: key(service), Family: model.IPv4}
	for i, h := range hints {
		e := model.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), Ready: true}
		if h != "" {
			e.Hints = &model.Hints{Zones: []string{h}}
		}
		sl.Endpoints = append(sl.Endpoints, e)
	}
	return model.Event{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: sl.Key, Value: sl}}
}

func noSlice(name string) model.Event {
	return model.Event{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: model.SliceKey(key(name))}}
}

func noNode() model.Event {
	return model.Event{Node: &model.Keyed[string, model.Node]{Key: "n1"}}
}

func node(zone string) model.Event {
	return model.Event{Node: &model.Keyed[string, model.Node]{Key: "n1", Value: &model.Node{Name: "n1", Zone: zone}}}
}

// step is one batch and what it must answer.
type step struct {
	events []model.Event
	dirty  string // names of dirty Services, sorted
	view   bool
	noops  int
	keys   string // names of everything that is known afterwards, sorted
}

func ev(list ...model.Event) []model.Event { return list }

func TestApply(t *testing.T) {
	cases := map[string][]step{
		"an event that changes nothing is dropped": {
			{events: ev(svc("a"), slice("a-1", "a", "")), dirty: "a", keys: "a"},
			{events: ev(svc("a"), slice("a-1", "a", "")), noops: 2, keys: "a"},
			{events: ev(noSvc("b"), noSlice("b-1")), noops: 2, keys: "a"},
			{events: ev(node("z")), view: true, keys: "a"},
			{events: ev(node("z")), noops: 1, keys: "a"},
		},
		"there and back in one batch": {
			{events: ev(svc("a"), noSvc("a")), dirty: "a"},
		},
		"a slice before its Service": {
			{events: ev(slice("a-1", "a", "")), dirty: "a", keys: "a"},
			{events: ev(svc("a")), dirty: "a", keys: "a"},
		},
		"a slice moves between Services": {
			{events: ev(svc("a"), svc("b"), slice("x", "a", "")), dirty: "a b", keys: "a b"},
			{events: ev(slice("x", "b", "")), dirty: "a b", keys: "a b"},
			{events: ev(noSlice("x")), dirty: "b", keys: "a b"},
		},
		"a slice moves to a Service that nobody knows": {
			{events: ev(slice("x", "a", "")), dirty: "a", keys: "a"},
			{events: ev(slice("x", "b", "")), dirty: "a b", keys: "b"},
		},
		"deleted, Service first": {
			{events: ev(svc("a"), slice("a-1", "a", "")), dirty: "a", keys: "a"},
			{events: ev(noSvc("a")), dirty: "a", keys: "a"},
			{events: ev(noSlice("a-1")), dirty: "a"},
		},
		"deleted, slice first": {
			{events: ev(svc("a"), slice("a-1", "a", "")), dirty: "a", keys: "a"},
			{events: ev(noSlice("a-1")), dirty: "a", keys: "a"},
			{events: ev(noSvc("a")), dirty: "a"},
		},
		"host addresses and Service ranges touch the view only": {
			{events: ev(svc("a"), hostAddr("10.0.0.1/8")), dirty: "a", view: true, keys: "a"},
			{events: ev(hostAddr("10.0.0.1/8")), noops: 1, keys: "a"},
			{events: ev(withLink(hostAddr("10.0.0.1/8"), 3)), view: true, keys: "a"},
			{events: ev(withLink(hostAddr("10.0.0.1/8"), 4)), view: true, keys: "a"},
			{events: ev(withLink(hostAddr("10.0.0.1/8"), 4)), noops: 1, keys: "a"},
			{events: ev(hostAddr("10.0.0.1/8")), view: true, keys: "a"},
			{events: ev(model.Event{CIDRs: &model.ServiceCIDRs{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}}}), view: true, keys: "a"},
			{events: ev(model.Event{CIDRs: &model.ServiceCIDRs{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}}}), noops: 1, keys: "a"},
		},
	}
	checkSteps(t, cases)
}

func TestApplyNode(t *testing.T) {
	checkSteps(t, map[string][]step{
		"a new zone dirties only hinted Services": {
			{events: ev(svc("a"), slice("a-1", "a", "", "z"), svc("b"), slice("b-1", "b", "")), dirty: "a b", keys: "a b"},
			{events: ev(node("z")), dirty: "a", view: true, keys: "a b"},
			{events: ev(node("y")), dirty: "a", view: true, keys: "a b"},
		},
		"hints in one slice of several count": {
			{events: ev(svc("a"), slice("a-1", "a", ""), slice("a-2", "a", "", "z")), dirty: "a", keys: "a"},
			{events: ev(node("z")), dirty: "a", view: true, keys: "a"},
		},
		"a Node that is deleted stays known": {
			{events: ev(svc("a"), slice("a-1", "a", "z"), node("z")), dirty: "a", view: true, keys: "a"},
			{events: ev(noNode()), view: true, keys: "a"},
			{events: ev(noNode()), noops: 1, keys: "a"},
			{events: ev(node("z")), view: true, keys: "a"},
		},
		"that there is a cluster counts once": {
			{events: ev(model.Event{Cluster: true}), view: true},
			{events: ev(model.Event{Cluster: true}), noops: 1},
		},
		"a node that only leaves dirties nothing": {
			{events: ev(node("z"), slice("a-1", "a", "z")), dirty: "a", view: true, keys: "a"},
			{events: ev(model.Event{Node: &model.Keyed[string, model.Node]{Key: "n1",
				Value: &model.Node{Name: "n1", Zone: "z", Leaving: true}}}), view: true, keys: "a"},
		},
	})
}

func checkSteps(t *testing.T, cases map[string][]step) {
	t.Helper()
	for name, steps := range cases {
		t.Run(name, func(t *testing.T) {
			st := state.New()
			for i, s := range steps {
				c := st.Apply(s.events)
				if got := names(maps.Keys(c.Dirty)); got != s.dirty {
					t.Errorf("step %d: dirty %q, want %q", i, got, s.dirty)
				}
				if got := names(st.Keys()); got != s.keys {
					t.Errorf("step %d: known %q, want %q", i, got, s.keys)
				}
				if c.View != s.view || c.NoOps != s.noops {
					t.Errorf("step %d: view %t, %d no-ops; want %t, %d", i, c.View, c.NoOps, s.view, s.noops)
				}
			}
		})
	}
}

// withLink adds a device of this index.
func withLink(e model.Event, index int) model.Event {
	e.Host.Links = []model.Link{{Name: "eth0", Index: index}}
	return e
}

func hostAddr(p string) model.Event {
	return model.Event{Host: &model.HostAddrs{Addrs: []model.HostAddr{{Prefix: netip.MustParsePrefix(p), Link: "eth0"}}}}
}

func names(keys func(func(model.ServiceKey) bool)) string {
	var out []string
	for _, k := range slices.SortedFunc(keys, model.ServiceKey.Compare) {
		out = append(out, k.Name)
	}
	return strings.Join(out, " ")
}

func TestSlicesComeSorted(t *testing.T) {
	st := state.New()
	st.Apply(ev(slice("a-3", "a"), slice("a-1", "a"), svc("a"), slice("a-2", "a"), slice("a-1", "a", "")))
	_, list := st.Service(key("a"))
	var got []string
	for _, sl := range list {
		got = append(got, sl.Key.Name)
	}
	if !slices.Equal(got, []string{"a-1", "a-2", "a-3"}) {
		t.Errorf("slices %q", got)
	}
}

func TestCounts(t *testing.T) {
	st := state.New()
	st.Apply(ev(svc("a"), svcWith("b", func(s *model.Service) { s.Proxied = false }), slice("a-1", "a", "", ""), slice("b-1", "b", "")))
	expectCounts(t, st, 1, 2, 3)
	st.Apply(ev(svcWith("a", func(s *model.Service) { s.Proxied = false }), svc("b"), slice("a-1", "b", "")))
	expectCounts(t, st, 1, 2, 2)
	st.Apply(ev(noSvc("b"), noSlice("a-1")))
	expectCounts(t, st, 0, 1, 1)
}

func expectCounts(t *testing.T, st *state.State, services, slices, endpoints int) {
	t.Helper()
	if a, b, c := st.Counts(); a != services || b != slices || c != endpoints {
		t.Errorf("%d Services, %d slices, %d endpoints; want %d, %d, %d", a, b, c, services, slices, endpoints)
	}
}

func TestSynced(t *testing.T) {
	c := state.New().Apply(ev(model.Event{Synced: "services"}, svc("a"), model.Event{Synced: "slices"}))
	if !slices.Equal(c.Synced, []string{"services", "slices"}) {
		t.Errorf("synced %q", c.Synced)
	}
}

// What a deleted Node said stays known, and so do the addresses and pod CIDRs that a new Node of the name does not have yet.
func TestKnownNode(t *testing.T) {
	of := func(n *model.Node) model.Event {
		return model.Event{Node: &model.Keyed[string, model.Node]{Key: "n1", Value: n}}
	}
	pods := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
	one, two := []netip.Addr{netip.MustParseAddr("192.0.2.1")}, []netip.Addr{netip.MustParseAddr("192.0.2.2")}
	st := state.New()
	for _, s := range []struct {
		name       string
		event      model.Event
		now, known *model.Node
		cluster    bool
	}{
		{"never one", of(nil), nil, nil, false},
		{"registered", of(&model.Node{Name: "n1"}), &model.Node{Name: "n1"}, &model.Node{Name: "n1"}, true},
		{"with all", of(&model.Node{Name: "n1", Zone: "a", Addrs: one, PodCIDRs: pods}), &model.Node{Name: "n1", Zone: "a", Addrs: one, PodCIDRs: pods},
			&model.Node{Name: "n1", Zone: "a", Addrs: one, PodCIDRs: pods}, true},
		{"deleted", of(nil), nil, &model.Node{Name: "n1", Zone: "a", Addrs: one, PodCIDRs: pods}, true},
		{"registered again", of(&model.Node{Name: "n1"}), &model.Node{Name: "n1"}, &model.Node{Name: "n1", Addrs: one, PodCIDRs: pods}, true},
		{"moved", of(&model.Node{Name: "n1", Addrs: two}), &model.Node{Name: "n1", Addrs: two}, &model.Node{Name: "n1", Addrs: two, PodCIDRs: pods}, true},
	} {
		st.Apply(ev(s.event))
		if !st.Node().Equal(s.now) || !st.KnownNode().Equal(s.known) || st.Cluster() != s.cluster {
			t.Errorf("%s: %+v, known %+v, cluster %t; want %+v, %+v, %t", s.name, st.Node(), st.KnownNode(), st.Cluster(), s.now, s.known, s.cluster)
		}
	}
}
