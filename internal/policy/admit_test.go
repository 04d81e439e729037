package policy_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// aNode is a node with two addresses in a cluster with known Service ranges.
func aNode() policy.Self {
	return policy.Self{Name: "n1", Addrs: addrs("127.0.0.1", "192.168.1.1", "fe80::1", "2001:db8::1"), ServiceCIDRs: prefixes("10.96.0.0/12", "fd00::/108")}
}

// Contract point 1, "Admission": what an external or load balancer address must not be.
func TestAdmit(t *testing.T) {
	const web = "Service default/web: "
	for _, c := range []struct {
		name               string
		external, balancer []netip.Addr
		off                bool   // the feature gate AllowServiceExternalIPs
		deny               bool   // --no-external-ips-of-node
		want               string // what is served, external then load balancer
		problems           []string
	}{
		{name: "nothing wrong", external: addrs("1.2.3.4"), balancer: addrs("5.6.7.8"), want: "1.2.3.4 5.6.7.8"},
		{name: "the node's own", external: addrs("1.2.3.4", "192.168.1.1", "2001:db8::1"), want: "1.2.3.4 192.168.1.1 2001:db8::1"},
		{name: "the node's own, denied", deny: true, external: addrs("1.2.3.4", "192.168.1.1", "2001:db8::1"), want: "1.2.3.4",
			problems: []string{"spec.externalIPs[1]: 192.168.1.1 is an address of this node: it is not served",
				"spec.externalIPs[2]: 2001:db8::1 is an address of this node: it is not served"}},
		{name: "loopback", external: addrs("127.1.2.3", "::1"), problems: []string{"spec.externalIPs[0]: 127.1.2.3 is a loopback address: it is not served",
			"spec.externalIPs[1]: ::1 is a loopback address: it is not served"}},
		{name: "link-local", external: addrs("169.254.169.254", "fe80::5"), problems: []string{"spec.externalIPs[0]: 169.254.169.254 is a link-local address: it is not served",
			"spec.externalIPs[1]: fe80::5 is a link-local address: it is not served"}},
		{name: "multicast, link-local or not", external: addrs("224.0.0.1", "239.1.1.1", "ff02::1"), problems: []string{
			"spec.externalIPs[0]: 224.0.0.1 is a multicast address: it is not served",
			"spec.externalIPs[1]: 239.1.1.1 is a multicast address: it is not served",
			"spec.externalIPs[2]: ff02::1 is a multicast address: it is not served"}},
		{name: "unspecified", external: addrs("0.0.0.0", "::"), problems: []string{"spec.externalIPs[0]: 0.0.0.0 is the unspecified address: it is not served",
			"spec.externalIPs[1]: :: is the unspecified address: it is not served"}},
		{name: "a cluster address", external: addrs("10.111.0.1", "fd00::7"), problems: []string{
			"spec.externalIPs[0]: 10.111.0.1 is inside the cluster's Service ranges: it is not served",
			"spec.externalIPs[1]: fd00::7 is inside the cluster's Service ranges: it is not served"}},
		{name: "places of what the source refused", external: append([]netip.Addr{{}}, addrs("127.0.0.1", "1.2.3.4")...), want: "1.2.3.4",
			problems: []string{"spec.externalIPs[1]: 127.0.0.1 is a loopback address: it is not served"}},
		{name: "the gate is off", external: addrs("1.2.3.4", "127.0.0.1"), balancer: addrs("5.6.7.8"), off: true, want: "5.6.7.8",
			problems: []string{"spec.externalIPs: not served, because the feature gate AllowServiceExternalIPs is off"}},
		{name: "the gate is off, no external IP is left to speak of", external: []netip.Addr{{}}, off: true},
		{name: "a load balancer's may be the node's own", balancer: addrs("192.168.1.1"), want: "192.168.1.1"},
		{name: "both, of the node's own", deny: true, external: addrs("192.168.1.1"), balancer: addrs("192.168.1.1"), want: "192.168.1.1 192.168.1.1"},
		{name: "a load balancer's may not be everything", balancer: addrs("127.0.0.1", "169.254.0.9", "0.0.0.0", "5.6.7.8", "224.0.0.5"), want: "5.6.7.8",
			problems: []string{"status.loadBalancer.ingress: 127.0.0.1 is a loopback address: it is not served",
				"status.loadBalancer.ingress: 169.254.0.9 is a link-local address: it is not served",
				"status.loadBalancer.ingress: 0.0.0.0 is the unspecified address: it is not served",
				"status.loadBalancer.ingress: 224.0.0.5 is a multicast address: it is not served"}},
		{name: "both, of what nobody may have", external: addrs("127.0.0.1"), balancer: addrs("127.0.0.1"), problems: []string{
			"status.loadBalancer.ingress: 127.0.0.1 is a loopback address: it is not served",
			"spec.externalIPs[0]: 127.0.0.1 is a loopback address: it is not served"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			svc := service(model.Service{ClusterIPs: addrs("10.96.0.1", "fd00::1"), ExternalIPs: c.external, LoadBalancerIPs: c.balancer})
			node := aNode()
			node.NoExternalIPs, node.NoExternalIPsOfNode = c.off, c.deny
			served, problems := policy.Admit(&svc, &node)
			var got []string
			for _, a := range append(append([]netip.Addr(nil), served.ExternalIPs...), served.LoadBalancerIPs...) {
				got = append(got, a.String())
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("serves %q, want %q", s, c.want)
			}
			got = nil
			for _, p := range problems {
				got = append(got, strings.TrimPrefix(p.String(), web))
			}
			expect(t, "problems", strings.Join(got, "\n"), strings.Join(c.problems, "\n"))
			if len(c.problems) == 0 && c.want != "" && served != &svc {
				t.Error("a Service with nothing wrong was copied")
			}
		})
	}
}

// What is not admitted has no Frontend, no range and no claim, and its owner is told once.
func TestWhatIsNotAdmitted(t *testing.T) {
	node := aNode()
	node.NoExternalIPsOfNode = true
	svc := service(model.Service{ExternalIPs: addrs("192.168.1.1", "1.2.3.4"), Extras: model.Extras{PortRange: "1-65535"}})
	table := policy.NewServices()
	table.SetNode(node)
	table.Update(svc.Key, &svc)
	res := table.Decide(svc.Key, nil)
	var got []string
	for i := range res.Frontends {
		got = append(got, res.Frontends[i].Key.String())
	}
	expect(t, "Frontends", strings.Join(got, " "), "10.96.0.1:80/TCP 10.96.0.1:1-65535/TCP 1.2.3.4:80/TCP 1.2.3.4:1-65535/TCP")
	if len(res.Problems) != 1 || res.Problems[0].Field != "spec.externalIPs[0]" {
		t.Errorf("problems %v", res.Problems)
	}
	other := service(model.Service{Key: named("lb"), Created: 5, ClusterIPs: addrs("10.96.0.2"), LoadBalancerIPs: addrs("192.168.1.1")})
	if affected, _ := table.Update(other.Key, &other); affected != nil {
		t.Errorf("the address was claimed: %v are affected", affected)
	}
	if res := table.Decide(other.Key, nil); len(res.Frontends) != 2 || res.Problems != nil {
		t.Errorf("the load balancer's Service: %v, %v", res.Frontends, res.Problems)
	}
}

// A Service that nobody serves is nobody's business here: no line for its addresses.
func TestAdmitLeavesOthersAlone(t *testing.T) {
	node := aNode()
	svc := service(model.Service{ExternalIPs: addrs("127.0.0.1")})
	svc.Proxied = false
	if got, problems := policy.Admit(&svc, &node); got != &svc || problems != nil {
		t.Errorf("%v, %v", got, problems)
	}
	if got, problems := policy.Admit(nil, &node); got != nil || problems != nil {
		t.Errorf("%v, %v", got, problems)
	}
}

// As addresses come to the node and go, and Service ranges change, whoever held
// or holds what it may not is decided again; nobody else is.
func TestNodeChangesOwnership(t *testing.T) {
	table := policy.NewServices()
	mine := service(model.Service{Key: named("mine"), Created: 1, ClusterIPs: addrs("10.96.0.1"), ExternalIPs: addrs("1.2.3.4")})
	rival := service(model.Service{Key: named("rival"), Created: 2, ClusterIPs: addrs("10.96.0.2"), ExternalIPs: addrs("1.2.3.5", "1.2.3.4")})
	guarded := service(model.Service{Key: named("guarded"), ClusterIPs: addrs("10.96.0.3"), LoadBalancerIPs: addrs("1.2.3.9"), SourceRanges: prefixes("9.0.0.0/8"), SourceGuarded: true})
	plain := service(model.Service{Key: named("plain"), ClusterIPs: addrs("10.96.0.4")})
	all := []*model.Service{&mine, &rival, &guarded, &plain}
	move := func(what string, node policy.Self, wantDirty, wantGone, holder string) {
		t.Helper()
		dirty := map[string]bool{}
		for _, k := range table.SetNode(node) {
			dirty[k.Name] = true
		}
		var gone []string
		for _, s := range all {
			affected, lost := table.Update(s.Key, s)
			for _, k := range affected {
				dirty[k.Name] = true
			}
			for _, k := range lost {
				gone = append(gone, s.Key.Name+" "+k.String())
			}
		}
		var names []string
		for _, s := range all {
			if dirty[s.Key.Name] {
				names = append(names, s.Key.Name)
			}
		}
		expect(t, what+": dirty", strings.Join(names, " "), wantDirty)
		expect(t, what+": keys gone", strings.Join(gone, ", "), wantGone)
		who := ""
		for _, s := range all {
			for _, f := range table.Decide(s.Key, nil).Frontends {
				if f.Key == shared {
					who += s.Key.Name
				}
			}
		}
		expect(t, what+": holder", who, holder)
	}
	for _, s := range all {
		table.Update(s.Key, s)
	}
	move("start", policy.Self{Addrs: addrs("192.168.1.1")}, "guarded", "", "mine")
	move("nothing new", policy.Self{Zone: "b", Addrs: addrs("192.168.1.1")}, "", "", "mine")
	move("the node gets the address", policy.Self{Addrs: addrs("1.2.3.4", "192.168.1.1")}, "mine rival guarded", "", "mine")
	move("and may not serve it", policy.Self{Addrs: addrs("1.2.3.4", "192.168.1.1"), NoExternalIPsOfNode: true}, "mine rival guarded",
		"mine 1.2.3.4:80/TCP, rival 1.2.3.4:80/TCP", "")
	move("and loses it", policy.Self{Addrs: addrs("192.168.1.1")}, "mine rival guarded", "", "mine")
	move("a Service range with it", policy.Self{Addrs: addrs("192.168.1.1"), ServiceCIDRs: prefixes("1.2.3.4/32")}, "mine rival guarded",
		"mine 1.2.3.4:80/TCP, rival 1.2.3.4:80/TCP", "")
	move("and without", policy.Self{Addrs: addrs("192.168.1.1")}, "mine rival guarded", "", "mine")
	move("the gate is closed", policy.Self{Addrs: addrs("192.168.1.1"), NoExternalIPs: true}, "mine rival guarded",
		"mine 1.2.3.4:80/TCP, rival 1.2.3.5:80/TCP, rival 1.2.3.4:80/TCP", "")
}

// An external IP that is an address of this node is noted, by name, for as long as it is one; a load balancer's is not.
func TestExternalIPOfTheNodeIsNoted(t *testing.T) {
	table := policy.NewServices()
	svc := service(model.Service{ClusterIPs: addrs("10.96.0.1"), ExternalIPs: addrs("1.2.3.4", "5.6.7.8"), LoadBalancerIPs: addrs("5.6.7.8")})
	other := service(model.Service{Key: named("other"), ClusterIPs: addrs("10.96.0.2"), ExternalIPs: addrs("1.2.3.5")})
	table.Update(svc.Key, &svc)
	table.Update(other.Key, &other)
	notes := func() (out []string) {
		for _, n := range table.Decide(svc.Key, nil).Notes {
			if n.Kind == policy.ExternalIPOfNode {
				out = append(out, n.Text)
			}
		}
		return out
	}
	for _, step := range []struct {
		addrs []netip.Addr
		want  string // part of the note; "" if there is none
	}{
		{addrs("192.168.1.1"), ""}, {addrs("1.2.3.4", "5.6.7.8", "192.168.1.1"), "1.2.3.4 is an address of this node"}, {addrs("5.6.7.8", "192.168.1.1"), ""},
	} {
		dirty := table.SetNode(policy.Self{Addrs: step.addrs})
		got := strings.Join(notes(), "\n")
		if (got == "") != (step.want == "") || !strings.Contains(got, step.want) {
			t.Errorf("node with %v: notes %q, want %q", step.addrs, got, step.want)
		}
		if len(step.addrs) == 3 && (len(dirty) != 1 || dirty[0] != svc.Key) {
			t.Errorf("node with %v: decided again %v, want %v", step.addrs, dirty, svc.Key)
		}
	}
}
