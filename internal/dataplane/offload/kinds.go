package offload

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Kinds of objects, above those of any driver beside. An object needs only those before it. There is no root: that is the
// other driver's.
const (
	kindTable     dataplane.Kind = 128 + iota // value: layout
	kindFlowtable                             // value: present
	kindChain                                 // ID: name; value: present
	kindSet                                   // ID: name; value: present
	kindRule                                  // ID: threshold, "" for the node's, or handOver; value: the tags of its rules, with their chains
	kindMember                                // ID: name of the set, "|", key; value: present
	kindExcluded                              // value: who is in the set of that name, as a list of first and last addresses
	kindDevice                                // ID: name; value: deviceValue
)

// isMine distinguishes the objects of this package from those of the driver beside.
func isMine(k dataplane.Key) bool { return k.Kind >= kindTable }

const (
	tableName = "fairlead-offload"
	flowtable = "kube-proxy-flowtable"      // KEP-4963's name
	layout    = "fairlead-offload layout 2" // a table of another one is made anew
	present   = "\x01"

	chainName = "forward"   // at the hook
	take      = "take"      // looks up, for connections with enough packets
	handOver  = "hand-over" // for those that are found

	nodeIPs   = "node-ips"  // where NodePorts answer
	services  = "services"  // address . protocol . port
	nodePorts = "nodeports" // protocol . port
	excluded  = "excluded"  // whose connections are left alone
)

// isChain reports whether a chain is one of ours, by name.
func isChain(name string) bool {
	of, threshold, own := strings.Cut(name, "-")
	return name == chainName || name == take || name == handOver || own && of == take && isThreshold(threshold)
}

// behindFilter is behind every filter: what a policy drops is not taken past it.
const behindFilter = 100

func families() [2]model.Family { return [...]model.Family{model.IPv4, model.IPv6} }

func kernelFamily(f model.Family) nft.Family {
	if f == model.IPv6 {
		return nft.IPv6
	}
	return nft.IPv4
}

func tableRef(f model.Family) nft.TableRef {
	return nft.TableRef{Family: kernelFamily(f), Name: tableName}
}

// IsTable reports whether a table is one of this package, by name.
func IsTable(t nft.TableRef) bool {
	return t == tableRef(model.IPv4) || t == tableRef(model.IPv6)
}

func flowRef(f model.Family) nft.SetRef { return tableRef(f).Set(flowtable) }

// named is the set of a threshold.
func named(set, threshold string) string {
	if threshold == "" {
		return set
	}
	return set + "-" + threshold
}

// Sizes are declared: the kernel then keeps a table that does not grow, in which a dump misses nothing.
const (
	maxServices  = 1 << 16 // one megabyte for each family
	maxNodePorts = 1 << 14
	maxNodeIPs   = 1 << 10
	maxOwn       = 1 << 12 // of a threshold that Services asked for
)

// setSpec declares a set; false if no set of ours has the name.
func setSpec(f model.Family, name string) (nft.SetSpec, bool) {
	s := nft.SetSpec{Ref: tableRef(f).Set(name)}
	set, threshold, own := strings.Cut(name, "-")
	if own && name != nodeIPs && !isThreshold(threshold) {
		return s, false
	}
	switch {
	case name == excluded:
		s.Key, s.Flags = []nft.Part{nft.Addr(kernelFamily(f))}, nft.SetInterval
	case name == nodeIPs:
		s.Key, s.Size = []nft.Part{nft.Addr(kernelFamily(f))}, maxNodeIPs
		return s, true
	case set == services:
		s.Key, s.Size = []nft.Part{nft.Addr(kernelFamily(f)), nft.L4Proto, nft.Port}, maxServices
	case set == nodePorts:
		s.Key, s.Size = []nft.Part{nft.L4Proto, nft.Port}, maxNodePorts
	default:
		return s, false
	}
	if own {
		s.Size = maxOwn
	}
	return s, true
}

func isThreshold(s string) bool {
	n, err := strconv.ParseUint(s, 10, 31)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == s
}

// keyString names an object readably.
func keyString(k dataplane.Key) string {
	where := tableRef(k.Family).String()
	switch k.Kind {
	case kindTable:
		return "table " + where
	case kindFlowtable:
		return "flowtable " + where + " " + flowtable
	case kindChain:
		return "chain " + where + " " + k.ID
	case kindSet:
		return "set " + where + " " + k.ID
	case kindRule:
		return "rules " + where + " " + nameOf(k.ID)
	case kindExcluded:
		return "elements " + where + " " + excluded
	case kindMember:
		set, key, _ := strings.Cut(k.ID, "|")
		return fmt.Sprintf("element %s %s %x", where, set, key)
	case kindDevice:
		return "device " + k.ID + " of flowtable " + where + " " + flowtable
	}
	return k.String()
}
