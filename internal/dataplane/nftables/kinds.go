package nftables

import (
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// The kinds, in creation order: what publishes a Frontend comes last.
const (
	kindSet         = dataplane.KindRoot + 1 + iota
	kindClients     // the map of clients of a Service port
	kindLeafChain   // refers to sets only
	kindOuterChain  // refers to leaf chains
	kindBaseChain   // hooks, and the fixed chains to which they jump
	kindStickyRules // of a chain of one Service port: they are deleted with its map of clients, the chain may linger
	kindStray       // an element that Render would not write, as found by Load
	kindPodCIDRs
	kindServiceCIDRs
	kindNodePortIP
	kindClusterIP
	kindHairpin
	kindHairpinRange
	kindGuarded
	kindGuardedNodePort
	kindAllowed
	kindAllowedNodePort
	kindAllowedRange
	kindLive
	kindLocalLive
	kindNodePortLive
	kindNodePortLocalLive
	kindEndpoints
	kindLocalEndpoints
	kindNodePortEndpoints
	kindNodePortLocalEndpoints
	kindRangeEndpoints
	kindRangeLocalEndpoints
	kindHashed // the first of six, one for each kind of endpoints in their order, for consistent hash
	kindLocalHashed
	kindNodePortHashed
	kindNodePortLocalHashed
	kindRangeHashed
	kindRangeLocalHashed
	kindAffinity
	kindAffinityNodePort
	kindRefused
	kindRefusedNodePort
	kindRefusedRange
	kindRanges
	kindServices
	kindNodePorts
	kinds // the number of kinds
)

// firstElement is the lowest kind that is an element of a set.
const firstElement = kindStray

// inert reports whether an object has no effect unless another refers to it.
func inert(k dataplane.Key) bool {
	return k.Kind == kindClients || k.Kind == kindLeafChain || k.Kind == kindOuterChain || k.Kind == kindStickyRules
}

// Shared implements dataplane.Driver. Sets, chains, and the objects of an address are shared.
func (d *Driver) Shared(k dataplane.Key) bool {
	return k.Kind < firstElement || k.Kind == kindClusterIP || k.Kind == kindHairpin || k.Kind == kindHairpinRange
}

// shape is how the elements of a set make up objects.
type shape uint8

const (
	shapeNone    shape = iota
	shapeMember        // one object is one element without value
	shapeVerdict       // one object is one element with a verdict
	shapePool          // one object is all slots of one Frontend
	shapeRanges        // one object is the whole set of address ranges
	shapeAllowed       // one object is all address ranges of one Frontend
	shapeLive          // one object is all endpoints of one Frontend, each its own member
)

// ident is the kind of key with which an element of the set begins.
type ident uint8

const (
	identNone      ident = iota
	identAddr            // address
	identVIP             // address, protocol, port
	identNodePort        // protocol, port
	identHairpin         // the same address twice, protocol, port
	identAddrProto       // address, protocol
	identPairProto       // the same address twice, protocol
	identRange           // address, protocol, first to last port
)

// setDef declares one of the Driver's sets and the objects in it.
type setDef struct {
	name  string
	kind  dataplane.Kind // of the objects in it
	shape shape
	ident ident
	split bool // over the shards
	// hashed: the objects are tables of consistent hash. They are stored in the set of
	// endpoints of that name, from slot hashBase on, and the order of their slots matters.
	hashed bool
}

// setDefs are the sets of each table, sorted by kind, without the maps of clients.
var setDefs = [...]setDef{
	{name: "pod-cidrs", kind: kindPodCIDRs, shape: shapeRanges},
	{name: "service-cidrs", kind: kindServiceCIDRs, shape: shapeRanges},
	{name: "nodeport-ips", kind: kindNodePortIP, shape: shapeMember, ident: identAddr},
	{name: "cluster-ips", kind: kindClusterIP, shape: shapeMember, ident: identAddr},
	{name: "hairpin", kind: kindHairpin, shape: shapeMember, ident: identHairpin},
	{name: "hairpin-ranges", kind: kindHairpinRange, shape: shapeMember, ident: identPairProto},
	{name: "fw-guarded", kind: kindGuarded, shape: shapeMember, ident: identVIP},
	{name: "fw-guarded-nodeports", kind: kindGuardedNodePort, shape: shapeMember, ident: identNodePort},
	{name: "fw-allowed", kind: kindAllowed, shape: shapeAllowed, ident: identVIP},
	{name: "fw-allowed-nodeports", kind: kindAllowedNodePort, shape: shapeAllowed, ident: identNodePort},
	{name: "fw-allowed-ranges", kind: kindAllowedRange, shape: shapeAllowed, ident: identRange},
	{name: "live", kind: kindLive, shape: shapeLive, ident: identVIP},
	{name: "local-live", kind: kindLocalLive, shape: shapeLive, ident: identVIP},
	{name: "np-live", kind: kindNodePortLive, shape: shapeLive, ident: identNodePort},
	{name: "np-local-live", kind: kindNodePortLocalLive, shape: shapeLive, ident: identNodePort},
	{name: "eps", kind: kindEndpoints, shape: shapePool, ident: identVIP, split: true},
	{name: "local-eps", kind: kindLocalEndpoints, shape: shapePool, ident: identVIP},
	{name: "np-eps", kind: kindNodePortEndpoints, shape: shapePool, ident: identNodePort},
	{name: "np-local-eps", kind: kindNodePortLocalEndpoints, shape: shapePool, ident: identNodePort},
	{name: "range-eps", kind: kindRangeEndpoints, shape: shapePool, ident: identAddrProto},
	{name: "range-local-eps", kind: kindRangeLocalEndpoints, shape: shapePool, ident: identAddrProto},
	{name: "eps", kind: kindHashed, shape: shapePool, ident: identVIP, split: true, hashed: true},
	{name: "local-eps", kind: kindLocalHashed, shape: shapePool, ident: identVIP, hashed: true},
	{name: "np-eps", kind: kindNodePortHashed, shape: shapePool, ident: identNodePort, hashed: true},
	{name: "np-local-eps", kind: kindNodePortLocalHashed, shape: shapePool, ident: identNodePort, hashed: true},
	{name: "range-eps", kind: kindRangeHashed, shape: shapePool, ident: identAddrProto, hashed: true},
	{name: "range-local-eps", kind: kindRangeLocalHashed, shape: shapePool, ident: identAddrProto, hashed: true},
	{name: "affinity", kind: kindAffinity, shape: shapeVerdict, ident: identVIP},
	{name: "affinity-nodeports", kind: kindAffinityNodePort, shape: shapeVerdict, ident: identNodePort},
	{name: "no-endpoints", kind: kindRefused, shape: shapeVerdict, ident: identVIP},
	{name: "no-endpoint-nodeports", kind: kindRefusedNodePort, shape: shapeVerdict, ident: identNodePort},
	{name: "no-endpoint-ranges", kind: kindRefusedRange, shape: shapeVerdict, ident: identRange},
	{name: "ranges", kind: kindRanges, shape: shapeVerdict, ident: identRange},
	{name: "services", kind: kindServices, shape: shapeVerdict, ident: identVIP},
	{name: "nodeports", kind: kindNodePorts, shape: shapeVerdict, ident: identNodePort},
}

// defOf returns the set that holds objects of an element kind, nil for others.
func defOf(k dataplane.Kind) *setDef {
	if i := int(k) - int(kindPodCIDRs); i >= 0 && k < kinds {
		return &setDefs[i]
	}
	return nil
}

// defNamed returns the set of a name, nil for a foreign one.
func defNamed(name string) *setDef {
	for i := range setDefs {
		if slices.Contains(setDefs[i].parts(), name) {
			return &setDefs[i]
		}
	}
	return nil
}

// ownSets returns the setDefs that have a set. The tables of consistent hash share the set of another setDef.
func ownSets() []*setDef {
	out := make([]*setDef, 0, len(setDefs))
	for i := range setDefs {
		if !setDefs[i].hashed {
			out = append(out, &setDefs[i])
		}
	}
	return out
}

// hashedKind returns the kind of table that is stored in the set of a kind of endpoints.
func hashedKind(endpoints dataplane.Kind) dataplane.Kind {
	return endpoints - kindEndpoints + kindHashed
}
