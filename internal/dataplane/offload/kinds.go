package offload

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Kinds of objects, above those of any wrapped driver. An object depends only on objects of earlier kinds. There is no root kind:
// the wrapped driver has it.
const (
	kindTable     dataplane.Kind = 128 + iota // value: layout
	kindFlowtable                             // value: present
	kindChain                                 // ID: name; value: present
	kindSet                                   // ID: name; value: present
	kindRule                                  // ID: threshold, "" for that of the node, or handOver; value: the tags of its rules, with their chains
	kindMember                                // ID: name of the set, "|", key; value: present
	kindExcluded                              // value: the ranges in the set excluded, as a list of first and last addresses
	kindDevice                                // ID: name; value: deviceValue
)

// isMine reports whether an object is one of this package; the others are those of the wrapped driver.
func isMine(k dataplane.Key) bool { return k.Kind >= kindTable }

const (
	tableName = "fairlead-offload"
	flowtable = "kube-proxy-flowtable"      // KEP-4963's name
	layout    = "fairlead-offload layout 2" // a table with another layout is rebuilt
	present   = "\x01"

	chainName = "forward"   // the base chain, at the hook
	take      = "take"      // looks up the destination of connections with enough packets
	handOver  = "hand-over" // offloads connections for which the lookup succeeded

	nodeIPs   = "node-ips"  // the addresses that serve NodePorts
	services  = "services"  // address . protocol . port
	nodePorts = "nodeports" // protocol . port
	excluded  = "excluded"  // addresses whose connections are not offloaded
)

// isChain reports whether name is that of a chain of this package.
func isChain(name string) bool {
	of, threshold, own := strings.Cut(name, "-")
	return name == chainName || name == take || name == handOver || own && of == take && isThreshold(threshold)
}

// behindFilter is a hook priority after that of every filter chain: packets that a network policy drops never reach the flowtable rule.
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

// IsTable reports whether a table has the name and family of a table of this package.
func IsTable(t nft.TableRef) bool {
	return t == tableRef(model.IPv4) || t == tableRef(model.IPv6)
}

func flowRef(f model.Family) nft.SetRef { return tableRef(f).Set(flowtable) }

// named returns the name of the set of a threshold; "" is the threshold of the node.
func named(set, threshold string) string {
	if threshold == "" {
		return set
	}
	return set + "-" + threshold
}

// The sizes of sets. With a declared size the kernel uses a hash table that does not grow, so that a dump is complete.
const (
	maxServices  = 1 << 16 // one megabyte for each family
	maxNodePorts = 1 << 14
	maxNodeIPs   = 1 << 10
	maxOwn       = 1 << 12 // a set of a threshold that Services specify
)

// setSpec returns the declaration of a set; false if no set of this package has the name.
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

// keyString returns a readable name of an object.
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
