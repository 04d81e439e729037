package property

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// world is the state of the cluster that the sources would deliver.
type world struct {
	r        *rand.Rand
	services map[int]*model.Service
	slices   map[int]*model.Slice
	node     *model.Node // nil: there is no Node
	host     *model.HostAddrs
	cidrs    *model.ServiceCIDRs
}

func newWorld(r *rand.Rand) *world {
	w := &world{r: r, services: map[int]*model.Service{}, slices: map[int]*model.Slice{}}
	w.node = &model.Node{Name: "n", Zone: "z0", Addrs: []netip.Addr{v4(192, 168, 0, 1), v6(1)}}
	w.host = &model.HostAddrs{Addrs: []model.HostAddr{{Prefix: netip.PrefixFrom(v4(192, 168, 0, 1), 24), Link: "eth0"}}}
	w.cidrs = &model.ServiceCIDRs{}
	return w
}

func v4(a, b, c, d int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(a), byte(b), byte(c), byte(d)})
}
func v6(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd00::%x", n)) }

// all returns events for every object, in random order, as at a start.
func (w *world) all() []model.Event {
	evs := []model.Event{w.nodeEvent(), {Host: w.host}, {CIDRs: w.cidrs}}
	for i := range w.services {
		evs = append(evs, w.serviceEvent(i))
	}
	for i := range w.slices {
		evs = append(evs, w.sliceEvent(i))
	}
	w.r.Shuffle(len(evs), func(i, j int) { evs[i], evs[j] = evs[j], evs[i] })
	return append(evs, model.Event{Synced: "test"})
}

// again returns all events of a source that lost its watch and lists again. Objects that disappeared in between are reported as deleted.
func (w *world) again() []model.Event {
	evs := w.all()
	for i := range keys {
		if w.services[i] == nil {
			evs = append(evs, w.serviceEvent(i))
		}
		if w.slices[i] == nil {
			evs = append(evs, w.sliceEvent(i))
		}
	}
	return evs
}

// keys is the number of possible Services and slices.
const keys = 8

// change makes one random change and returns its event.
func (w *world) change() model.Event {
	i := w.r.IntN(keys)
	switch w.r.IntN(12) {
	case 0, 1, 2:
		w.services[i] = w.randomService(i)
		return w.serviceEvent(i)
	case 3:
		delete(w.services, i)
		return w.serviceEvent(i)
	case 4:
		delete(w.slices, i)
		return w.sliceEvent(i)
	case 5:
		w.node = w.randomNode()
		if w.r.IntN(3) == 0 {
			w.loseNode()
		}
		return w.nodeEvent()
	case 6: // an address that is sometimes an external IP, one that a starting pod may bring, or none
		more := [][]netip.Addr{nil, {v4(198, 51, 100, 1)}, {netip.MustParseAddr("fe80::1")}}[w.r.IntN(3)]
		w.host = &model.HostAddrs{Addrs: []model.HostAddr{{Prefix: netip.PrefixFrom(v4(192, 168, 0, 1+w.r.IntN(2)), 24), Link: "eth0"}}}
		for _, a := range more {
			w.host.Addrs = append(w.host.Addrs, model.HostAddr{Prefix: netip.PrefixFrom(a, a.BitLen()), Link: "eth1"})
		}
		return model.Event{Host: w.host}
	case 7:
		w.cidrs = &model.ServiceCIDRs{Prefixes: [][]netip.Prefix{nil, {netip.PrefixFrom(v4(10, 96, 0, 0), 24)},
			{netip.PrefixFrom(v4(198, 51, 100, 2), 31), netip.PrefixFrom(v6(0), 116)}}[w.r.IntN(3)]}
		return model.Event{CIDRs: w.cidrs}
	default:
		w.slices[i] = w.randomSlice(i)
		return w.sliceEvent(i)
	}
}

func (w *world) randomNode() *model.Node {
	return &model.Node{Name: "n", Zone: fmt.Sprintf("z%d", w.r.IntN(2)), Addrs: []netip.Addr{v4(192, 168, 0, 1+w.r.IntN(2)), v6(1)}}
}

// loseNode deletes or renames this machine's Node, or replaces it by one without its addresses, as kubelet registers it.
func (w *world) loseNode() {
	if w.r.IntN(2) == 0 {
		w.node = nil
	} else {
		w.node = &model.Node{Name: "n", Zone: w.node.Zone}
	}
}

func key(i int) model.ServiceKey {
	return model.ServiceKey{Namespace: "t", Name: fmt.Sprintf("s%d", i)}
}

func (w *world) randomService(i int) *model.Service {
	flip := func() bool { return w.r.IntN(2) == 0 }
	s := &model.Service{Key: key(i), Created: int64(w.r.IntN(3)), Proxied: w.r.IntN(8) > 0,
		ClusterIPs:    []netip.Addr{v4(10, 96, 0, 1+w.r.IntN(10)), v6(0x100 + w.r.IntN(10))}, // claims sometimes collide
		Ports:         []model.ServicePort{{Name: "a", Protocol: model.TCP, Port: 80, NodePort: uint16(30000 + w.r.IntN(6))}},
		InternalLocal: w.r.IntN(4) == 0, ExternalLocal: flip()}
	if flip() {
		s.Ports = append(s.Ports, model.ServicePort{Name: "b", Protocol: model.UDP, Port: 53})
	}
	if flip() {
		s.LoadBalancerIPs = []netip.Addr{v4(203, 0, 113, 1+i), v4(203, 0, 113, 101+i)}[:1+i%2]
		if flip() {
			s.SourceGuarded = true
			s.SourceRanges = []netip.Prefix{netip.PrefixFrom(v4(10, 0, 0, 0), 8), netip.PrefixFrom(v4(10, w.r.IntN(2), 0, 0), 16), netip.PrefixFrom(v4(192, 168, i/2%2, 0), 24)} // sometimes includes this node
		}
	}
	if flip() {
		s.ExternalIPs = []netip.Addr{v4(198, 51, 100, w.r.IntN(4))}
	}
	if w.r.IntN(3) == 0 {
		s.AffinityTimeout = time.Duration(1+w.r.IntN(2)) * time.Hour
	}
	s.Extras.ConsistentHash = w.r.IntN(6) == 0
	s.Extras.Weights = []string{"", "", "10.244.0.3=3,10.244.0.7=0", "10.244.0.5=4,10.244.0.6=2,fd00::1003=5"}[w.r.IntN(4)]
	s.Extras.PortRange = []string{"", "", "", "8000-8999", "a=70-90,b=50-60"}[w.r.IntN(5)]
	if i == keys-1 {
		guard(s)
	}
	if w.r.IntN(5) == 0 {
		s.Extras.NodePortRanges = []netip.Prefix{netip.PrefixFrom(v4(10, w.r.IntN(2), 0, 0), 16)}
	}
	return s
}

// guard adds the load balancer address and source ranges that let the kernel reject the Service. On its other addresses the Service may preempt
// others, and be preempted.
func guard(s *model.Service) {
	s.LoadBalancerIPs = []netip.Addr{v4(203, 0, 113, 200)}
	s.SourceGuarded, s.SourceRanges = true, []netip.Prefix{netip.PrefixFrom(v4(10, 0, 0, 0), 8)}
}

func (w *world) randomSlice(i int) *model.Slice {
	sl := &model.Slice{Key: model.SliceKey(key(i)), Service: key(w.r.IntN(8)), Family: model.IPv4,
		Ports: []model.SlicePort{{Name: "a", Protocol: model.TCP, Port: 8080}, {Name: "b", Protocol: model.UDP, Port: 5353}}}
	if w.r.IntN(3) == 0 {
		sl.Family = model.IPv6
	}
	for range w.r.IntN(12) {
		n := 1 + w.r.IntN(40)
		e := model.Endpoint{Addr: v4(10, 244, 0, n), Node: []string{"n", "m"}[w.r.IntN(2)], Ready: w.r.IntN(4) > 0, Serving: true}
		if sl.Family == model.IPv6 {
			e.Addr = v6(0x1000 + n)
		}
		e.Terminating = !e.Ready && w.r.IntN(2) == 0
		if w.r.IntN(2) == 0 {
			e.Hints = &model.Hints{Zones: []string{fmt.Sprintf("z%d", w.r.IntN(2))}}
		}
		sl.Endpoints = append(sl.Endpoints, e)
	}
	return sl
}

// settleDown assigns each endpoint to one node, independent of the Services that name it.
func (w *world) settleDown() {
	for _, sl := range w.slices {
		for i := range sl.Endpoints {
			e := &sl.Endpoints[i]
			raw := e.Addr.AsSlice()
			e.Node = []string{"n", "m"}[raw[len(raw)-1]%2]
		}
	}
}

func (w *world) serviceEvent(i int) model.Event {
	return model.Event{Service: &model.Keyed[model.ServiceKey, model.Service]{Key: key(i), Value: w.services[i]}}
}

func (w *world) sliceEvent(i int) model.Event {
	return model.Event{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: model.SliceKey(key(i)), Value: w.slices[i]}}
}

func (w *world) nodeEvent() model.Event {
	return model.Event{Node: &model.Keyed[string, model.Node]{Key: "n", Value: w.node}}
}
