package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/model"
)

// ViewInputs is everything that decides the NodeView. The lists are read-only.
type ViewInputs struct {
	// From the configuration.
	NodePortPrimary     bool           // --nodeport-addresses is "primary" (the default of nftables mode)
	NodePortCIDRs       []netip.Prefix // else these, as configured; none of a family = every address of it
	Mode                LocalModeName
	ClusterCIDRs        []netip.Prefix
	Interface           string // of the interface modes
	MasqueradeAll       bool
	CountRefusals       bool
	MasqueradeBit       uint8
	LocalhostPorts      bool       // --iptables-localhost-nodeports
	BindAddress         netip.Addr // overrides the node IP of its family unless unspecified
	NoExternalIPs       bool       // see Self
	NoExternalIPsOfNode bool       // see Self
	Relayed             bool       // see Self
	NoSource            string     // see Self

	// From the outside world.
	// Cluster reports that the sources describe a cluster: an API server, or a folder that
	// holds or held a Node. A machine without a cluster has no Node to name its addresses.
	Cluster bool
	Node    *model.Node // last known state; nil: there was never one
	Host    model.HostAddrs
	CIDRs   model.ServiceCIDRs
	// Exclusions are from acceleration.
	Exclusions model.Exclusions
}

// LocalModeName is kube-proxy's spelling of detectLocalMode.
type LocalModeName string

// The four modes of kube-proxy's detectLocalMode.
const (
	ClusterCIDR         LocalModeName = "ClusterCIDR"
	NodeCIDR            LocalModeName = "NodeCIDR"
	BridgeInterface     LocalModeName = "BridgeInterface"
	InterfaceNamePrefix LocalModeName = "InterfaceNamePrefix"
)

// View returns the NodeView for these inputs. It is pure, and the result shares no list with the inputs
// except Links.
func View(in ViewInputs) model.NodeView {
	v := model.NodeView{
		Local: in.detector(), MasqueradeAll: in.MasqueradeAll, CountRefusals: in.CountRefusals, MasqueradeBit: in.MasqueradeBit,
		ServiceCIDRs: Minimal(in.CIDRs.Prefixes), NodeAddrs: in.nodeAddrs(), Links: in.Host.Links,
		Unaccelerated: Minimal(in.Exclusions.Prefixes),
	}
	v.NodePortAddrs, v.NodePortsBy = in.nodePortAddrs(), in.nodePortsBy()
	v.HealthAddrs = in.healthAddrs(v.NodePortAddrs)
	v.LocalhostNodePorts = slices.ContainsFunc(v.NodePortAddrs, func(a netip.Addr) bool { return a.Is4() && a.IsLoopback() })
	v.ListenLocalhost = !in.NodePortPrimary && in.LocalhostPorts && contains(in.NodePortCIDRs, netip.IPv6Loopback())
	return v
}

// detector returns the LocalDetector of the mode; DetectNone if the ranges of the mode are not known.
func (in *ViewInputs) detector() model.LocalDetector {
	switch in.Mode {
	case BridgeInterface:
		return model.LocalDetector{Mode: model.DetectBridgeInterface, Interface: in.Interface}
	case InterfaceNamePrefix:
		return model.LocalDetector{Mode: model.DetectInterfaceNamePrefix, Interface: in.Interface}
	case NodeCIDR:
		if in.Node != nil && len(in.Node.PodCIDRs) > 0 {
			return model.LocalDetector{Mode: model.DetectCIDR, CIDRs: Minimal(in.Node.PodCIDRs)}
		}
	default:
		if len(in.ClusterCIDRs) > 0 {
			return model.LocalDetector{Mode: model.DetectCIDR, CIDRs: Minimal(in.ClusterCIDRs)}
		}
	}
	return model.LocalDetector{}
}

// ipvsLink is where kube-proxy's ipvs mode puts the addresses of Services, and
// leaves them when it stops: they are not the node's own.
const ipvsLink = "kube-ipvs0"

// nodeAddrs returns the addresses of this machine's links and of its Node, sorted.
func (in *ViewInputs) nodeAddrs() []netip.Addr {
	var out []netip.Addr
	for _, h := range in.Host.Addrs {
		if h.Link != ipvsLink {
			out = append(out, h.Prefix.Addr())
		}
	}
	if in.Node != nil {
		out = append(out, in.Node.Addrs...)
	}
	return sortedUnique(out)
}

// nodePortAddrs returns the addresses on which NodePorts answer, sorted (contract.md 10).
// ::1 is never among them: the kernel has no route_localnet for IPv6.
// If the CIDRs name it, package localhost answers there.
func (in *ViewInputs) nodePortAddrs() []netip.Addr {
	var out []netip.Addr
	if in.NodePortPrimary {
		return sortedUnique(in.primary())
	}
	for _, h := range in.Host.Addrs {
		a := h.Prefix.Addr()
		if !in.everyAddress(model.FamilyOf(a)) && !contains(in.NodePortCIDRs, a) {
			continue
		}
		if h.Link == ipvsLink || a.IsLinkLocalUnicast() || a.IsLoopback() && (a.Is6() || !in.LocalhostPorts) {
			continue
		}
		out = append(out, a)
	}
	return sortedUnique(out)
}

// everyAddress reports whether the configured CIDRs choose every address of a family.
// CIDRs of one family do not affect the other, as in kube-proxy.
func (in *ViewInputs) everyAddress(fam model.Family) bool {
	mine := ofFamily(in.NodePortCIDRs, fam)
	return !in.NodePortPrimary && (len(mine) == 0 || everyone(mine))
}

// healthAddrs returns where health check node ports listen: on the addresses of the
// NodePorts. Where these are all addresses of a family, it is the wildcard, as in
// kube-proxy (pkg/proxy/healthcheck): a load balancer may connect to an address that no
// interface has, and that a route makes local (kubernetes#117621). It is the wildcard too
// while the Node has never been seen and primary has no address. The file of the Node
// may be unreadable, and without an answer a load balancer would send no more traffic
// to the Services that an earlier run left in the kernel.
func (in *ViewInputs) healthAddrs(nodePorts []netip.Addr) (out []netip.Addr) {
	for _, a := range nodePorts {
		if !in.everyAddress(model.FamilyOf(a)) {
			out = append(out, a)
		}
	}
	for fam, wildcard := range map[model.Family]netip.Addr{model.IPv4: netip.IPv4Unspecified(), model.IPv6: netip.IPv6Unspecified()} {
		_, by := in.primaryOf(fam)
		if in.everyAddress(fam) || in.NodePortPrimary && in.Node == nil && by == "" {
			out = append(out, wildcard)
		}
	}
	return sortedUnique(out)
}

// primary returns the node IP of each family: --bind-address, else the Node's first
// address of the family. On a machine without a cluster these are all global unicast
// addresses of the host. In a cluster whose Node of this name is not known, or has no
// address, there is none: a NodePort that was configured for one address is not opened
// on all.
func (in *ViewInputs) primary() []netip.Addr {
	var out []netip.Addr
	for _, fam := range [...]model.Family{model.IPv4, model.IPv6} {
		list, _ := in.primaryOf(fam)
		out = append(out, list...)
	}
	return out
}

// primaryOf returns the node IPs of one family and their source, for an operator; by is "" if there is no source.
func (in *ViewInputs) primaryOf(fam model.Family) (out []netip.Addr, by string) {
	if b := in.BindAddress; b.IsValid() && !b.IsUnspecified() && model.FamilyOf(b) == fam {
		return []netip.Addr{b}, "--bind-address"
	}
	if in.Node != nil {
		for _, a := range in.Node.Addrs {
			if model.FamilyOf(a) == fam {
				return []netip.Addr{a}, "status.addresses of Node " + in.Node.Name
			}
		}
	}
	if in.Cluster || in.Node != nil {
		return nil, ""
	}
	for _, h := range in.Host.Addrs {
		if a := h.Prefix.Addr(); model.FamilyOf(a) == fam && a.IsGlobalUnicast() && h.Link != ipvsLink {
			out = append(out, a)
		}
	}
	return out, "no Node object is known, so every address of this machine counts as its primary one"
}

// nodePortsBy returns, for an operator, the reason why NodePorts are on the addresses
// of nodePortAddrs and on no others.
func (in *ViewInputs) nodePortsBy() string {
	if !in.NodePortPrimary {
		if len(in.NodePortCIDRs) == 0 {
			return "--nodeport-addresses has no range, so NodePorts are on every address of this machine"
		}
		return fmt.Sprintf("--nodeport-addresses is %v", in.NodePortCIDRs)
	}
	var all []string
	for _, fam := range [...]model.Family{model.IPv4, model.IPv6} {
		if _, by := in.primaryOf(fam); by != "" && !slices.Contains(all, by) {
			all = append(all, by)
		}
	}
	switch {
	case len(all) > 0:
	case in.Node == nil:
		all = []string{"the Node object of this machine is unknown"}
	default:
		all = []string{"Node " + in.Node.Name + " has no usable address"}
	}
	return "--nodeport-addresses is primary: " + strings.Join(all, ", ")
}

func sortedUnique(list []netip.Addr) []netip.Addr {
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}
