package convert

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/model"
)

func goodSlice(addresses ...string) *discoveryv1.EndpointSlice {
	o := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-abc", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: ptr(int32(8080))}},
	}
	for _, a := range addresses {
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return o
}

func TestSliceBadInput(t *testing.T) {
	ready := func(s *model.Slice) any {
		var out []netip.Addr
		for _, e := range s.Endpoints {
			out = append(out, e.Addr)
		}
		return out
	}
	ports := func(s *model.Slice) any { return s.Ports }
	cases := []struct {
		name  string
		slice *discoveryv1.EndpointSlice
		edit  func(*discoveryv1.EndpointSlice)
		want  []string
		check func(*model.Slice) any
		left  any
	}{
		{"nothing wrong", goodSlice("10.0.0.1"), nil, nil, ready, addrs("10.0.0.1")},
		{"bad address", goodSlice("10.0.0.1", "10.0.0.300", "10.0.0.3"), nil,
			[]string{`endpoints[1].addresses[0]: "10.0.0.300" is not an IP address`}, ready, addrs("10.0.0.1", "10.0.0.3")},
		{"port name that is none", goodSlice("10.0.0.1"), func(o *discoveryv1.EndpointSlice) { o.Ports[0].Name = ptr("\x1b") },
			[]string{`ports[0].name: "\x1b" is not a DNS label (lower case letters, digits and '-', at most 63 characters): the port is not used`},
			ports, []model.SlicePort(nil)},
		{"no address", goodSlice("10.0.0.1"), func(o *discoveryv1.EndpointSlice) { o.Endpoints[0].Addresses = nil },
			[]string{"endpoints[0].addresses: missing"}, ready, []netip.Addr(nil)},
		{"link-local", goodSlice("169.254.1.1"), nil,
			[]string{"endpoints[0].addresses[0]: 169.254.1.1 is a link-local address"}, ready, []netip.Addr(nil)},
		{"wrong family", goodSlice("10.0.0.1", "fd00::1", "fd00::2"), nil,
			[]string{"endpoints[1].addresses[0]: not of addressType IPv4: 2 of 3 endpoints are not used"}, ready, addrs("10.0.0.1")},
		{"same endpoint twice", goodSlice("10.0.0.1", "10.0.0.1"), nil,
			[]string{"endpoints[1].addresses[0]: 10.0.0.1 occurs twice in the slice: it is used once"}, ready, addrs("10.0.0.1")},
		{"hostname", goodSlice("10.0.0.1", "10.0.0.2"), func(o *discoveryv1.EndpointSlice) {
			o.Endpoints[0].Hostname, o.Endpoints[1].Hostname = ptr("my.host"), ptr("Web-0")
		}, []string{`endpoints[0].hostname: "my.host" is not a DNS label: DNS names the endpoint by its address`},
			func(s *model.Slice) any { return []string{s.Endpoints[0].Hostname, s.Endpoints[1].Hostname} }, []string{"", "Web-0"}},
		{"port nil", goodSlice(), func(o *discoveryv1.EndpointSlice) {
			o.Ports = append(o.Ports, discoveryv1.EndpointPort{Name: ptr("all")})
		}, []string{"ports[1].port: missing: a slice of all ports cannot be proxied"}, ports, []model.SlicePort{{Protocol: model.TCP, Port: 8080}}},
		{"port 0", goodSlice(), func(o *discoveryv1.EndpointSlice) { o.Ports[0].Port = ptr(int32(0)) },
			[]string{"ports[0].port: 0 is not a port"}, ports, []model.SlicePort(nil)},
		{"protocol", goodSlice(), func(o *discoveryv1.EndpointSlice) { o.Ports[0].Protocol = ptr(corev1.Protocol("QUIC")) },
			[]string{`ports[0].protocol: "QUIC" is none of TCP, UDP, SCTP: the port is not used`}, ports, []model.SlicePort(nil)},
		{"no Service", goodSlice(), func(o *discoveryv1.EndpointSlice) { o.Labels = nil },
			[]string{"metadata.labels: kubernetes.io/service-name is missing: the slice belongs to no Service"},
			func(s *model.Slice) any { return s == nil }, true},
		{"neither family", goodSlice(), func(o *discoveryv1.EndpointSlice) { o.AddressType = "IPX" },
			[]string{`addressType: "IPX" is neither IPv4 nor IPv6: the slice is not used`},
			func(s *model.Slice) any { return s == nil }, true},
		{"FQDN", goodSlice(), func(o *discoveryv1.EndpointSlice) { o.AddressType = discoveryv1.AddressTypeFQDN },
			nil,
			func(s *model.Slice) any { return s == nil }, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.edit != nil {
				c.edit(c.slice)
			}
			s, problems := New().Slice(c.slice)
			var want []string
			for _, w := range c.want {
				want = append(want, "EndpointSlice default/web-abc: "+w)
			}
			if got := lines(problems); !slices.Equal(got, want) {
				t.Errorf("problems\n got %q\nwant %q", got, want)
			}
			if got := c.check(s); !reflect.DeepEqual(got, c.left) {
				t.Errorf("left\n got %v\nwant %v", got, c.left)
			}
		})
	}
}

func TestEndpointConditions(t *testing.T) {
	yes, no := ptr(true), ptr(false)
	cases := []struct {
		in                          discoveryv1.EndpointConditions
		ready, serving, terminating bool
	}{
		{discoveryv1.EndpointConditions{}, true, true, false},
		{discoveryv1.EndpointConditions{Ready: no}, false, true, false},
		{discoveryv1.EndpointConditions{Ready: no, Serving: yes, Terminating: yes}, false, true, true},
		{discoveryv1.EndpointConditions{Ready: yes, Serving: no}, true, false, false},
	}
	for i, c := range cases {
		o := goodSlice("10.0.0.1")
		o.Endpoints[0].Conditions = c.in
		s, _ := New().Slice(o)
		e := s.Endpoints[0]
		if e.Ready != c.ready || e.Serving != c.serving || e.Terminating != c.terminating {
			t.Errorf("case %d: got %+v", i, e)
		}
	}
}

// Of two entries with the same address the one that is not
// terminating is used, in either order.
func TestBetterTwinWins(t *testing.T) {
	dying := discoveryv1.EndpointConditions{Ready: ptr(false), Serving: ptr(true), Terminating: ptr(true)}
	for first := range 2 {
		o := goodSlice("10.0.0.1", "10.0.0.1")
		o.Endpoints[first].Conditions = dying
		s, _ := New().Slice(o)
		if len(s.Endpoints) != 1 || s.Endpoints[0].Terminating {
			t.Errorf("dying entry at %d: got %+v", first, s.Endpoints)
		}
	}
}

// The API server's limit of 1000 endpoints a slice does not hold for a folder.
func TestManyEndpoints(t *testing.T) {
	var all []string
	for i := range 5000 {
		all = append(all, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String())
	}
	s, problems := New().Slice(goodSlice(all...))
	if len(s.Endpoints) != 5000 || len(problems) != 0 {
		t.Errorf("%d endpoints, %v", len(s.Endpoints), problems)
	}
}

func TestEndpointsShareStrings(t *testing.T) {
	o := goodSlice("10.0.0.1", "10.0.0.2")
	for i := range o.Endpoints {
		e := &o.Endpoints[i]
		e.NodeName, e.Zone = ptr(string([]byte("node-1"))), ptr(string([]byte("zone-a")))
		e.Hints = &discoveryv1.EndpointHints{
			ForZones: []discoveryv1.ForZone{{Name: "zone-a"}}, ForNodes: []discoveryv1.ForNode{{Name: "node-1"}},
		}
	}
	s, problems := New().Slice(o)
	a, b := s.Endpoints[0], s.Endpoints[1]
	if len(problems) != 0 || a.Node != "node-1" || unsafe.StringData(a.Node) != unsafe.StringData(b.Node) {
		t.Errorf("node name is not shared: %+v %+v %v", a, b, problems)
	}
	if a.Hints == nil || a.Hints != b.Hints || !slices.Equal(a.Hints.Nodes, []string{"node-1"}) || !slices.Equal(a.Hints.Zones, []string{"zone-a"}) {
		t.Errorf("hints are not shared: %+v %+v", a.Hints, b.Hints)
	}
	if unsafe.StringData(s.Service.Name) != unsafe.StringData(s.Key.Name) || s.Service.Name != "web" {
		t.Errorf("the Service's name %q has memory of its own", s.Service.Name)
	}
}

func TestTablesAreBounded(t *testing.T) {
	c := New()
	for i := range 2*maxInterned + 1 {
		c.intern(time.Duration(i).String())
	}
	if len(c.names) > maxInterned {
		t.Errorf("%d names are kept", len(c.names))
	}
}

func TestNode(t *testing.T) {
	o := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: "z"}},
		Spec: corev1.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24", "what"},
			Taints: []corev1.Taint{{Key: leavingTaint}}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeExternalIP, Address: "203.0.113.1"}, {Type: corev1.NodeHostName, Address: "n1"},
			{Type: corev1.NodeInternalIP, Address: "192.168.0.1"}, {Type: corev1.NodeInternalIP, Address: "?"},
		}},
	}
	n, problems := New().Node(o)
	want := &model.Node{Name: "n1", Zone: "z", Leaving: true,
		Addrs: addrs("192.168.0.1", "203.0.113.1"), PodCIDRs: ranges("10.1.0.0/24")}
	if !n.Equal(want) {
		t.Errorf("got %+v", n)
	}
	wantLines := []string{
		`Node n1: status.addresses[3].address: "?" is not an IP address`,
		`Node n1: spec.podCIDRs[1]: "what" is not a CIDR`,
	}
	if got := lines(problems); !slices.Equal(got, wantLines) {
		t.Errorf("got %q", got)
	}
}

func TestServiceCIDR(t *testing.T) {
	o := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/12", "fd00::/108", "bad"}}}
	got, problems := New().ServiceCIDR(o)
	if !slices.Equal(got, ranges("10.96.0.0/12", "fd00::/108")) {
		t.Errorf("got %v", got)
	}
	if l := lines(problems); !slices.Equal(l, []string{`ServiceCIDR kubernetes: spec.cidrs[2]: "bad" is not a CIDR`}) {
		t.Errorf("got %q", l)
	}
}

func TestTrigger(t *testing.T) {
	o := goodSlice()
	if !Trigger(o).IsZero() {
		t.Error("a trigger without annotation")
	}
	o.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-11-21T10:00:00.5Z"}
	if want := time.Date(2026, 11, 21, 10, 0, 0, 5e8, time.UTC); !Trigger(o).Equal(want) {
		t.Errorf("got %v", Trigger(o))
	}
}
