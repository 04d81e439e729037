package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// kube-proxy's chains.
const (
	servicesChain  = "KUBE-SERVICES"
	nodePortsChain = "KUBE-NODEPORTS"
	postrouting    = "KUBE-POSTROUTING"
	markMasq       = "KUBE-MARK-MASQ"
	externalChain  = "KUBE-EXTERNAL-SERVICES"
	forwardChain   = "KUBE-FORWARD"
	firewallChain  = "KUBE-PROXY-FIREWALL"
	canaryChain    = "KUBE-PROXY-CANARY"
)

// Chains that only this driver has.
const (
	markOutside  = "KUBE-MARK-OUTSIDE" // masquerade unless from one of several pod ranges
	rejectChain  = "KUBE-REJECT"       // in the filter table: a reset or an ICMP error
	hairpinChain = "KUBE-HAIRPIN"
	portsChain   = dispatchMark + "PORTS" // NodePorts, once the address is known to be one of the node's
	externalNode = "KUBE-X-NODEPORTS"
	externalPort = "KUBE-X-PORTS"
	firewallNode = "KUBE-W-NODEPORTS"
	firewallPort = "KUBE-W-PORTS"
	localnet     = "KUBE-LOCALNET" // drops what comes for 127.0.0.0/8 from outside
)

// shortHash is kube-proxy's: 16 characters of base32 of SHA-256.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base32.StdEncoding.EncodeToString(sum[:10])
}

// portName is kube-proxy's name of a Service port, "namespace/name:port".
func portName(f *model.Frontend) string {
	n := f.Service.Namespace + "/" + f.Service.Name
	if f.Port != "" {
		n += ":" + f.Port
	}
	return n
}

// maxComment is what the match comment holds, less the longest ending that the driver appends.
const maxComment = 255 - len(saysSource)

// readable is a name for comments. The API server lets nothing else through, but
// a folder of manifests has no API server, and a quote or a line feed would begin
// another rule.
func readable(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/:.-", r) {
			return r
		}
		return '_'
	}, name)
	return clean[:min(len(clean), maxComment)]
}

func word(p model.Protocol) string { return strings.ToLower(p.String()) }

// place is where Frontends are looked up: a trie over addresses below root, and
// one over ports below ports. The letter in the names of a trie's chains says what
// is looked up there: T translation (in filter: whether a ClusterIP that is not
// translated is refused), X eXternal addresses without endpoints, W walls around
// addresses with source ranges, N NodePorts, H hairpins.
type place struct {
	table table
	root  string
	ports string
	mark  string // begins the names of the buckets
}

// dispatchMark begins the names of the chains that jump to the chains of Services.
// kube-proxy flushes and deletes every chain whose name begins with KUBE-SVC- and
// which it does not need. After a rollback to kube-proxy without cleanup it deletes
// these too. With another name they would still jump to the chain of a Service that
// is deleted later, and the kernel would refuse kube-proxy's whole sync (EBUSY).
const dispatchMark = "KUBE-SVC-T-"

var (
	dispatch       = place{nat, servicesChain, portsChain, dispatchMark}
	refuseCluster  = place{filter, servicesChain, "", "KUBE-T-"}
	refuseExternal = place{filter, externalChain, externalPort, "KUBE-X-"}
	guardExternal  = place{filter, firewallChain, firewallPort, "KUBE-W-"}
	healthPorts    = place{filter, "", nodePortsChain, "KUBE-N-"}
	hairpins       = place{nat, hairpinChain, "", "KUBE-H-"}
)

// levels are the lengths at which a trie branches. In IPv6 the last half of a
// cluster's range is where its addresses differ. Packets that are refused may
// pass some more lines; a node's pods share a short range.
func (p place) levels(f model.Family) []int {
	v4, v6 := []int{12, 16, 20, 24, 28}, []int{64, 108, 112, 116, 120, 124}
	switch p.root {
	case hairpinChain:
		v4, v6 = []int{24, 28}, []int{64, 120, 124}
	case servicesChain:
		if p.table == filter {
			v4, v6 = []int{12, 16, 20, 24}, []int{64, 108, 112, 116, 120}
		}
	}
	if f == model.IPv6 {
		return v6
	}
	return v4
}

// bucketName names the chain of an address prefix. A chain's name has at most 28
// characters, so IPv6 prefixes are hashed to 12 characters of base32 (60 bits).
func (p place) bucketName(pre netip.Prefix) string {
	if pre.Addr().Is4() {
		return p.mark + pre.Addr().String() + "-" + itoa(pre.Bits())
	}
	return p.mark + shortHash(pre.Addr().String())[:12] + "-" + itoa(pre.Bits())
}

// sharedChains lists the chains of a table that exist even without lines.
func sharedChains(t table) []string {
	switch t {
	case nat:
		return []string{servicesChain, portsChain, hairpinChain}
	case filter:
		return []string{servicesChain, externalChain, externalPort, firewallChain, firewallPort, nodePortsChain}
	}
	return nil
}

// fixedChains lists the chains of a table whose content Base renders whole.
func fixedChains(t table) []string {
	switch t {
	case nat:
		return []string{nodePortsChain, postrouting, canaryChain}
	case filter:
		return []string{forwardChain, externalNode, firewallNode, canaryChain}
	}
	return []string{localnet, canaryChain}
}

// kindOfChain classifies a chain by its name; 0 is a foreign chain, which includes
// kubelet's KUBE-FIREWALL, KUBE-IPTABLES-HINT and KUBE-KUBELET-CANARY.
func kindOfChain(t table, name string) dataplane.Kind {
	if !strings.HasPrefix(name, "KUBE-") {
		return 0
	}
	switch {
	case slices.Contains(sharedChains(t), name):
		return kindBucket
	case slices.Contains(fixedChains(t), name):
		return kindBase
	}
	if t == nat && (name == markMasq || name == markOutside) || t == filter && name == rejectChain {
		return kindMark
	}
	if strings.HasPrefix(name, probeChain) { // of a probe that was killed
		return kindStray
	}
	if len(name) < len("KUBE-X-") {
		return 0
	}
	for _, c := range [...]struct {
		prefix string
		kind   dataplane.Kind
	}{
		{dispatchMark, kindLine}, {"KUBE-SVC-", kindService}, {"KUBE-SVL-", kindService}, {"KUBE-EXT-", kindExternal}, {"KUBE-FW-", kindFirewall},
		{"KUBE-SEP-", kindStray}, {"KUBE-XLB-", kindStray},
		{"KUBE-T-", kindLine}, {"KUBE-N-", kindLine}, {"KUBE-X-", kindLine}, {"KUBE-W-", kindLine}, {"KUBE-H-", kindLine},
	} {
		if strings.HasPrefix(name, c.prefix) {
			return c.kind
		}
	}
	return 0
}
