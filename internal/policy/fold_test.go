package policy_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
	"github.com/fairlead/fairlead/internal/state"
)

// folder takes events through state and policy as the engine does, and keeps
// every Service's last decision.
type folder struct {
	st       *state.State
	services *policy.Services
	have     map[model.ServiceKey]string
}

func newFolder() *folder {
	return &folder{st: state.New(), services: policy.NewServices(), have: map[model.ServiceKey]string{}}
}

func (f *folder) apply(events []model.Event) {
	c := f.st.Apply(events)
	if c.View {
		v := policy.View(policy.ViewInputs{Node: f.st.Node(), Host: f.st.Host(), CIDRs: f.st.ServiceCIDRs()})
		for _, k := range f.services.SetNode(policy.Self{Name: "n1", Zone: f.st.Zone(), Addrs: v.NodeAddrs, ServiceCIDRs: v.ServiceCIDRs}) {
			c.Dirty[k] = struct{}{}
		}
	}
	for k := range maps.Clone(c.Dirty) {
		svc, _ := f.st.Service(k)
		affected, _ := f.services.Update(k, svc)
		for _, o := range affected {
			c.Dirty[o] = struct{}{}
		}
	}
	for k := range c.Dirty {
		f.decide(k)
	}
}

func (f *folder) decide(k model.ServiceKey) {
	_, sl := f.st.Service(k)
	res := f.services.Decide(k, sl)
	var b strings.Builder
	for i := range res.Frontends {
		fmt.Fprintln(&b, line(&res.Frontends[i]))
	}
	if h := health(res.Health); h != "" {
		fmt.Fprintln(&b, "health", h)
	}
	if fl := flags(&res); fl != "" {
		fmt.Fprintln(&b, "no local", fl)
	}
	for _, p := range res.Problems {
		fmt.Fprintln(&b, p)
	}
	delete(f.have, k)
	if b.Len() > 0 {
		f.have[k] = b.String()
	}
}

// String is everything that is decided.
func (f *folder) String() string {
	var b strings.Builder
	for _, k := range slices.SortedFunc(maps.Keys(f.have), model.ServiceKey.Compare) {
		fmt.Fprintf(&b, "%s\n%s", k, f.have[k])
	}
	return b.String()
}

// world is one state of the outside: everything that exists.
type world struct {
	services map[string]*model.Service
	slices   map[string]*model.Slice
	zone     string
	nodeIP   string
	cidr     string
}

func (w *world) event(what string) model.Event {
	kind, name, _ := strings.Cut(what, "/")
	switch kind {
	case "service":
		return model.Event{Service: &model.Keyed[model.ServiceKey, model.Service]{
			Key: named(name), Value: w.services[name]}}
	case "slice":
		return model.Event{Slice: &model.Keyed[model.SliceKey, model.Slice]{
			Key: model.SliceKey{Namespace: "default", Name: name}, Value: w.slices[name]}}
	case "node":
		return model.Event{Node: &model.Keyed[string, model.Node]{Key: "n1", Value: &model.Node{
			Name: "n1", Zone: w.zone, Addrs: addrs(w.nodeIP)}}}
	case "cidrs":
		return model.Event{CIDRs: &model.ServiceCIDRs{Prefixes: prefixes(strings.Fields(w.cidr)...)}}
	}
	panic(kind)
}

// whats names everything there is in any of the worlds, in order.
func whats(worlds ...*world) []string {
	all := map[string]struct{}{"node/n1": {}, "cidrs/all": {}}
	for _, w := range worlds {
		for k := range w.services {
			all["service/"+k] = struct{}{}
		}
		for k := range w.slices {
			all["slice/"+k] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// scratch decides a world that nothing came before.
func (w *world) scratch() string {
	f := newFolder()
	var events []model.Event
	for _, k := range whats(w) {
		events = append(events, w.event(k))
	}
	f.apply(events)
	return f.String()
}
