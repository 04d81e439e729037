package policy_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// host is an ordinary machine: loopback, one card, a pod bridge.
var host = model.HostAddrs{Addrs: []model.HostAddr{
	{Prefix: netip.MustParsePrefix("127.0.0.1/8"), Link: "lo"}, {Prefix: netip.MustParsePrefix("::1/128"), Link: "lo"},
	{Prefix: netip.MustParsePrefix("192.168.1.5/24"), Link: "eth0"}, {Prefix: netip.MustParsePrefix("10.1.0.1/24"), Link: "cni0"},
	{Prefix: netip.MustParsePrefix("fd02::5/64"), Link: "eth0"}, {Prefix: netip.MustParsePrefix("fe80::5/64"), Link: "eth0"},
	{Prefix: netip.MustParsePrefix("169.254.20.10/32"), Link: "dns"},
}}

var node = &model.Node{Name: "n1", Addrs: addrs("192.168.1.5", "192.168.1.6", "fd02::5"), PodCIDRs: prefixes("10.1.0.0/24", "fd01::/64")}

// Contract point 10: where NodePorts answer.
func TestNodePortAddrs(t *testing.T) {
	cases := []struct {
		name string
		in   policy.ViewInputs
		want []netip.Addr
	}{
		{"primary", policy.ViewInputs{NodePortPrimary: true, Node: node}, addrs("192.168.1.5", "fd02::5")},
		{"primary, by --bind-address", policy.ViewInputs{NodePortPrimary: true, Node: node, BindAddress: addrs("192.168.1.6")[0]},
			addrs("192.168.1.6", "fd02::5")},
		{"primary, --bind-address is ::", policy.ViewInputs{NodePortPrimary: true, Node: node, BindAddress: addrs("::")[0]},
			addrs("192.168.1.5", "fd02::5")},
		{"primary of a single-stack node", policy.ViewInputs{NodePortPrimary: true, Node: &model.Node{Addrs: addrs("192.168.1.5")}},
			addrs("192.168.1.5")},
		{"primary without a cluster: what others can reach", policy.ViewInputs{NodePortPrimary: true},
			addrs("10.1.0.1", "192.168.1.5", "fd02::5")},
		{"primary in a cluster, the Node is not known: nowhere", policy.ViewInputs{NodePortPrimary: true, Cluster: true}, nil},
		{"primary, the Node has no address: nowhere", policy.ViewInputs{NodePortPrimary: true, Node: &model.Node{Name: "n1"}}, nil},
		{"primary in a cluster, by --bind-address alone", policy.ViewInputs{NodePortPrimary: true, Cluster: true, BindAddress: addrs("192.168.1.6")[0]},
			addrs("192.168.1.6")},
		{"all", policy.ViewInputs{Node: node}, addrs("10.1.0.1", "192.168.1.5", "fd02::5")},
		{"all, with localhost", policy.ViewInputs{LocalhostPorts: true}, addrs("10.1.0.1", "127.0.0.1", "192.168.1.5", "fd02::5")},
		{"by CIDR of both families", policy.ViewInputs{NodePortCIDRs: prefixes("192.168.0.0/16", "fd09::/64")}, addrs("192.168.1.5")},
		{"CIDRs of one family leave the other alone", policy.ViewInputs{NodePortCIDRs: prefixes("192.168.0.0/16")},
			addrs("192.168.1.5", "fd02::5")},
		{"localhost by CIDR", policy.ViewInputs{NodePortCIDRs: prefixes("127.0.0.0/8", "::1/128"), LocalhostPorts: true}, addrs("127.0.0.1")},
		{"localhost by CIDR, but not allowed", policy.ViewInputs{NodePortCIDRs: prefixes("127.0.0.0/8", "::1/128")}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.in.Host = host
			got := policy.View(c.in)
			if diff := cmp.Diff(fmt.Sprint(c.want), fmt.Sprint(got.NodePortAddrs)); diff != "" {
				t.Errorf("node port addresses (-want +got):\n%s", diff)
			}
			if local := hasAddr(got.NodePortAddrs, "127.0.0.1"); got.LocalhostNodePorts != local {
				t.Errorf("LocalhostNodePorts %t, want %t", got.LocalhostNodePorts, local)
			}
		})
	}
}

// NodePortsBy says why NodePorts are where they are, in each case in which that is decided otherwise.
func TestNodePortsBy(t *testing.T) {
	bind := addrs("192.168.1.6")[0]
	for want, in := range map[string]policy.ViewInputs{
		"--nodeport-addresses is primary: status.addresses of Node n1":                                                                         {NodePortPrimary: true, Cluster: true, Node: node},
		"--nodeport-addresses is primary: --bind-address, status.addresses of Node n1":                                                         {NodePortPrimary: true, Node: node, BindAddress: bind},
		"--nodeport-addresses is primary: --bind-address":                                                                                      {NodePortPrimary: true, Cluster: true, BindAddress: bind},
		"--nodeport-addresses is primary: no Node object is known, so every address of this machine counts as its primary one":                 {NodePortPrimary: true},
		"--nodeport-addresses is primary: --bind-address, no Node object is known, so every address of this machine counts as its primary one": {NodePortPrimary: true, BindAddress: bind},
		"--nodeport-addresses is primary: the Node object of this machine is unknown":                                                          {NodePortPrimary: true, Cluster: true},
		"--nodeport-addresses is primary: Node n1 has no usable address":                                                                       {NodePortPrimary: true, Cluster: true, Node: &model.Node{Name: "n1"}},
		"--nodeport-addresses is [192.168.0.0/16]":                                                                                             {NodePortCIDRs: prefixes("192.168.0.0/16"), Node: node},
		"--nodeport-addresses has no range, so NodePorts are on every address of this machine":                                                 {},
	} {
		in.Host = host
		if got := policy.View(in).NodePortsBy; got != want {
			t.Errorf("%+v: %q, want %q", in, got, want)
		}
	}
}

// Health check node ports listen where NodePorts answer. Every address is the wildcard, and no address is an empty list.
func TestHealthAddrs(t *testing.T) {
	for _, c := range []struct {
		name string
		in   policy.ViewInputs
		want string
	}{
		{"all", policy.ViewInputs{}, "[0.0.0.0 ::]"},
		{"all of one family, chosen of the other", policy.ViewInputs{NodePortCIDRs: prefixes("192.168.0.0/16")}, "[192.168.1.5 ::]"},
		{"all, as CIDRs", policy.ViewInputs{NodePortCIDRs: prefixes("192.168.0.0/16", "0.0.0.0/0", "::/0")}, "[0.0.0.0 ::]"},
		{"by CIDR", policy.ViewInputs{NodePortCIDRs: prefixes("192.168.0.0/16", "fd02::/64")}, "[192.168.1.5 fd02::5]"},
		{"by CIDRs that no address is in", policy.ViewInputs{NodePortCIDRs: prefixes("172.31.0.0/16", "fd99::/64")}, "[]"},
		{"primary", policy.ViewInputs{NodePortPrimary: true, Node: node}, "[192.168.1.5 fd02::5]"},
		{"primary, the Node is not known", policy.ViewInputs{NodePortPrimary: true, Cluster: true}, "[0.0.0.0 ::]"},
		{"primary by --bind-address, the Node is not known", policy.ViewInputs{NodePortPrimary: true, Cluster: true, BindAddress: netip.MustParseAddr("192.168.1.5")}, "[192.168.1.5 ::]"},
		{"primary, the Node has no address", policy.ViewInputs{NodePortPrimary: true, Cluster: true, Node: &model.Node{Name: "n1"}}, "[]"},
	} {
		c.in.Host = host
		if got := fmt.Sprint(policy.View(c.in).HealthAddrs); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// What kube-proxy's ipvs mode left on its dummy link are Services' addresses, not
// the node's: no NodePort answers there, and no external IP is refused for it.
func TestAddressesLeftByIPVS(t *testing.T) {
	left := model.HostAddrs{Addrs: []model.HostAddr{{Prefix: prefixes("203.0.113.9/32")[0], Link: "kube-ipvs0"}, {Prefix: prefixes("192.168.1.5/24")[0], Link: "eth0"}}}
	for _, primary := range []bool{true, false} {
		v := policy.View(policy.ViewInputs{Host: left, NodePortPrimary: primary})
		if got := fmt.Sprint(v.NodeAddrs, v.NodePortAddrs); got != "[192.168.1.5] [192.168.1.5]" {
			t.Errorf("primary %t: %s", primary, got)
		}
	}
}

// KEP-6032: on ::1 a program must listen, and does so only if asked to.
func TestListenLocalhost(t *testing.T) {
	for _, c := range []struct {
		name string
		in   policy.ViewInputs
		want bool
	}{
		{"by its own CIDR", policy.ViewInputs{NodePortCIDRs: prefixes("::1/128"), LocalhostPorts: true}, true},
		{"by the CIDR of everything", policy.ViewInputs{NodePortCIDRs: prefixes("0.0.0.0/0", "::/0"), LocalhostPorts: true}, true},
		{"not allowed", policy.ViewInputs{NodePortCIDRs: prefixes("::1/128")}, false},
		{"other CIDRs", policy.ViewInputs{NodePortCIDRs: prefixes("fd00::/8", "0.0.0.0/0"), LocalhostPorts: true}, false},
		{"every address, but nobody said ::1", policy.ViewInputs{LocalhostPorts: true}, false},
		{"primary", policy.ViewInputs{NodePortPrimary: true, NodePortCIDRs: prefixes("::1/128"), LocalhostPorts: true}, false},
	} {
		if got := policy.View(c.in).ListenLocalhost; got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}

func hasAddr(list []netip.Addr, a string) bool {
	for _, x := range list {
		if x.String() == a {
			return true
		}
	}
	return false
}

// Contract point 4: who counts as a pod of ours.
func TestLocalDetector(t *testing.T) {
	cidr := func(list ...string) model.LocalDetector {
		return model.LocalDetector{Mode: model.DetectCIDR, CIDRs: prefixes(list...)}
	}
	cases := []struct {
		name string
		in   policy.ViewInputs
		want model.LocalDetector
	}{
		{"cluster CIDRs, nested", policy.ViewInputs{Mode: policy.ClusterCIDR, ClusterCIDRs: prefixes("10.1.0.0/24", "10.0.0.0/8", "fd01::/48")},
			cidr("10.0.0.0/8", "fd01::/48")},
		{"the default mode", policy.ViewInputs{ClusterCIDRs: prefixes("10.0.0.0/8")}, cidr("10.0.0.0/8")},
		{"no cluster CIDR: nothing is masqueraded for it", policy.ViewInputs{Mode: policy.ClusterCIDR}, model.LocalDetector{}},
		{"node CIDRs", policy.ViewInputs{Mode: policy.NodeCIDR, Node: node}, cidr("10.1.0.0/24", "fd01::/64")},
		{"node CIDRs not known yet", policy.ViewInputs{Mode: policy.NodeCIDR}, model.LocalDetector{}},
		{"bridge", policy.ViewInputs{Mode: policy.BridgeInterface, Interface: "cni0"},
			model.LocalDetector{Mode: model.DetectBridgeInterface, Interface: "cni0"}},
		{"prefix", policy.ViewInputs{Mode: policy.InterfaceNamePrefix, Interface: "veth"},
			model.LocalDetector{Mode: model.DetectInterfaceNamePrefix, Interface: "veth"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(fmt.Sprint(c.want), fmt.Sprint(policy.View(c.in).Local)); diff != "" {
				t.Errorf("detector (-want +got):\n%s", diff)
			}
		})
	}
}

func TestViewRest(t *testing.T) {
	v := policy.View(policy.ViewInputs{Node: node, Host: host, MasqueradeAll: true, MasqueradeBit: 14,
		CIDRs: model.ServiceCIDRs{Prefixes: prefixes("10.96.0.0/12", "10.96.0.0/16", "fd00::/108")}})
	if got := fmt.Sprint(v.ServiceCIDRs); got != "[10.96.0.0/12 fd00::/108]" {
		t.Errorf("service CIDRs %s", got)
	}
	if !v.MasqueradeAll || v.MasqueradeBit != 14 {
		t.Errorf("masquerade %t bit %d", v.MasqueradeAll, v.MasqueradeBit)
	}
	want := "[10.1.0.1 127.0.0.1 169.254.20.10 192.168.1.5 192.168.1.6 ::1 fd02::5 fe80::5]"
	if got := fmt.Sprint(v.NodeAddrs); got != want {
		t.Errorf("node addresses %s, want %s", got, want)
	}
}
