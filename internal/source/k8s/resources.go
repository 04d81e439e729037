package k8s

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/source/convert"
)

// resource is one kind of object that is watched.
type resource struct {
	name     string
	client   rest.Interface
	expected runtime.Object
	narrow   func(*metav1.ListOptions)
	store    cache.ReflectorStore
	state    *resourceState
}

// services watches Services. It includes those of other proxies and headless ones
// only if DNS is on, because DNS serves them all.
func (s *Source) services() *resource {
	st := newStore[*model.Service](s, "services", essential)
	st.convert = func(o runtime.Object) (item[*model.Service], error) {
		service, ok := o.(*corev1.Service)
		if !ok {
			return item[*model.Service]{}, unexpected(o)
		}
		v, problems := s.convert.Service(service)
		i := item[*model.Service]{name: name{v.Key.Namespace, v.Key.Name}, value: v, problems: problems}
		i.mark.digest = s.digest.service(v, problems)
		i.mark.uid = uidOf(service.UID)
		return i, nil
	}
	tell := func(n name, v *model.Service, problems []model.Problem) {
		s.put(model.Event{
			Service:  &model.Keyed[model.ServiceKey, model.Service]{Key: model.ServiceKey{Namespace: n.namespace, Name: n.name}, Value: v},
			Problems: problems,
		})
	}
	st.changed = func(i item[*model.Service]) { tell(i.name, i.value, i.problems) }
	st.gone = func(n name) { tell(n, nil, nil) }
	s.serviceMark = st.markOf
	return &resource{
		name: "services", client: s.clients.core, expected: &corev1.Service{}, store: st, state: st.state,
		narrow: func(o *metav1.ListOptions) {
			if !s.config.Headless {
				o.LabelSelector = "!" + convert.ProxyNameLabel
				o.FieldSelector = "spec.clusterIP!=" + corev1.ClusterIPNone
			}
		},
	}
}

// slices watches the EndpointSlices of these Services.
func (s *Source) slices() *resource {
	st := newStore[sliceValue](s, "endpointslices", essential)
	st.convert = func(o runtime.Object) (item[sliceValue], error) {
		slice, ok := o.(*discoveryv1.EndpointSlice)
		if !ok {
			return item[sliceValue]{}, unexpected(o)
		}
		v, problems := s.convert.Slice(slice)
		i := item[sliceValue]{value: sliceValue{slice: v}, problems: problems}
		if v != nil {
			i.name = name{v.Key.Namespace, v.Key.Name}
		} else {
			i.name = name{strings.Clone(slice.Namespace), strings.Clone(slice.Name)}
		}
		i.mark.digest = s.digest.slice(v, problems)
		// A change from before the start of this process is not measured
		// (kube-proxy's rule).
		if t := convert.Trigger(slice); t.After(s.started) {
			i.value.trigger = t
		}
		return i, nil
	}
	tell := func(n name, v sliceValue, problems []model.Problem) {
		s.put(model.Event{
			Slice: &model.Keyed[model.SliceKey, model.Slice]{
				Key: model.SliceKey{Namespace: n.namespace, Name: n.name}, Value: v.slice,
			},
			Trigger: v.trigger, Problems: problems,
		})
	}
	st.changed = func(i item[sliceValue]) { tell(i.name, i.value, i.problems) }
	st.gone = func(n name) { tell(n, sliceValue{}, nil) }
	return &resource{
		name: "endpointslices", client: s.clients.discovery, expected: &discoveryv1.EndpointSlice{}, store: st, state: st.state,
		narrow: func(o *metav1.ListOptions) {
			o.LabelSelector = discoveryv1.LabelServiceName
			if !s.config.Headless {
				o.LabelSelector += ",!" + convert.ProxyNameLabel + ",!" + convert.HeadlessLabel
			}
		},
	}
}

type sliceValue struct {
	slice   *model.Slice
	trigger time.Time
}

// node watches the agent's own Node.
func (s *Source) node() *resource {
	st := newStore[*model.Node](s, "nodes", important)
	st.convert = func(o runtime.Object) (item[*model.Node], error) {
		node, ok := o.(*corev1.Node)
		if !ok {
			return item[*model.Node]{}, unexpected(o)
		}
		v, problems := s.convert.Node(node)
		i := item[*model.Node]{name: name{name: v.Name}, value: v, problems: problems}
		i.mark.digest = s.digest.node(v, problems)
		return i, nil
	}
	tell := func(n name, v *model.Node, problems []model.Problem) {
		s.put(model.Event{Node: &model.Keyed[string, model.Node]{Key: n.name, Value: v}, Origin: "Node " + n.name, Problems: problems})
	}
	st.changed = func(i item[*model.Node]) { tell(i.name, i.value, i.problems) }
	st.gone = func(n name) { tell(n, nil, nil) }
	return &resource{
		name: "nodes", client: s.clients.core, expected: &corev1.Node{}, store: st, state: st.state,
		narrow: func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + s.config.NodeName },
	}
}

// cidrs watches the ServiceCIDRs, which are delivered as one object. Clusters
// before Kubernetes 1.33 have none, and a role from then may not allow access to
// them.
func (s *Source) cidrs() *resource {
	all := &ranges{put: s.put, known: make(map[string]item[[]netip.Prefix])}
	st := newStore[[]netip.Prefix](s, "servicecidrs", optional)
	st.convert = func(o runtime.Object) (item[[]netip.Prefix], error) {
		cidr, ok := o.(*networkingv1.ServiceCIDR)
		if !ok {
			return item[[]netip.Prefix]{}, unexpected(o)
		}
		v, problems := s.convert.ServiceCIDR(cidr)
		i := item[[]netip.Prefix]{name: name{name: strings.Clone(cidr.Name)}, value: v, problems: problems}
		i.mark.digest = s.digest.prefixes(v, problems)
		return i, nil
	}
	st.changed = func(i item[[]netip.Prefix]) { all.set(i.name.name, &i) }
	st.gone = func(n name) { all.set(n.name, nil) }
	return &resource{
		name: "servicecidrs", client: s.clients.networking, expected: &networkingv1.ServiceCIDR{}, store: st, state: st.state,
		narrow: func(*metav1.ListOptions) {},
	}
}

// ranges collects the ServiceCIDRs.
type ranges struct {
	put   func(model.Event)
	mu    sync.Mutex
	known map[string]item[[]netip.Prefix]
}

func (r *ranges) set(name string, i *item[[]netip.Prefix]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i == nil {
		delete(r.known, name)
	} else {
		r.known[name] = *i
	}
	event := model.Event{CIDRs: &model.ServiceCIDRs{}, Origin: "ServiceCIDRs"}
	for _, i := range r.known {
		event.CIDRs.Prefixes = append(event.CIDRs.Prefixes, i.value...)
		event.Problems = append(event.Problems, i.problems...)
	}
	slices.SortFunc(event.CIDRs.Prefixes, netip.Prefix.Compare)
	event.CIDRs.Prefixes = slices.Compact(event.CIDRs.Prefixes)
	slices.SortFunc(event.Problems, func(a, b model.Problem) int { return strings.Compare(a.String(), b.String()) })
	r.put(event)
}

// newStore returns a store. Its list must arrive before Synced is delivered.
func newStore[V any](s *Source, resource string, need need) *store[V] {
	state := s.tracker.add(resource, need)
	return &store[V]{
		state: state, marks: make(map[name]mark),
		heard:  func() { s.tracker.heard(state) },
		listed: func() { s.tracker.listed(state) },
	}
}

func unexpected(o runtime.Object) error { return fmt.Errorf("convert object: unexpected type %T", o) }
