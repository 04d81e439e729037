package nftables

import (
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// The kinds, in the order of creation. The kinds that publish a Frontend come last.
const (
	kindSet         = dataplane.KindRoot + 1 + iota
	kindClients     // the map of clients of a Service port
	kindLeafChain   // refers to sets only
	kindOuterChain  // refers to leaf chains
	kindBaseChain   // base chains, and the fixed chains that they jump to
	kindStickyRules // the rules of a sticky chain: deleted with its map of clients, while the chain may linger
	kindStray       // an element that the agent would not write, as Load found it
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
	kindHashed // consistent hash tables: these six kinds correspond to the six kinds of endpoints, in order
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

// inert reports whether an object has no effect unless another object refers to it.
func inert(k dataplane.Key) bool {
	return k.Kind == kindClients || k.Kind == kindLeafChain || k.Kind == kindOuterChain || k.Kind == kindStickyRules
}

// Shared implements dataplane.Driver. It reports whether several Services may own an
// object, or objects that refer to it: sets, chains and objects of an address are shared.
func (d *Driver) Shared(k dataplane.Key) bool {
	return k.Kind < firstElement || k.Kind == kindClusterIP || k.Kind == kindHairpin || k.Kind == kindHairpinRange
}

// shape is how the elements of a set map to objects.
type shape uint8

const (
	shapeNone    shape = iota
	shapeMember        // one object is one element without data
	shapeVerdict       // one object is one element with a verdict
	shapePool          // one object is all slots of one Frontend
	shapeRanges        // one object is the whole set of address ranges
	shapeAllowed       // one object is all address ranges of one Frontend
	shapeLive          // one object is all endpoints of one Frontend, each an element without data
)

// ident is the format of the key that an element of the set begins with.
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

// setDef declares one owned set and the objects in it.
type setDef struct {
	name  string
	kind  dataplane.Kind // of the objects in it
	shape shape
	ident ident
	split bool // the objects are distributed over the shards
	// hashed means that the objects are consistent hash tables. They are in the set of
	// endpoints of the same name, from slot hashBase on. The order of their slots has a
	// meaning.
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

// defOf returns the definition of the set that holds objects of an element kind, nil for
// other kinds.
func defOf(k dataplane.Kind) *setDef {
	if i := int(k) - int(kindPodCIDRs); i >= 0 && k < kinds {
		return &setDefs[i]
	}
	return nil
}

// defNamed returns the definition of the set of a name, nil for a foreign set.
func defNamed(name string) *setDef {
	for i := range setDefs {
		if slices.Contains(setDefs[i].parts(), name) {
			return &setDefs[i]
		}
	}
	return nil
}

// ownSets returns the definitions that create a set. Those of consistent hash tables are
// left out, because they share the set of another definition.
func ownSets() []*setDef {
	out := make([]*setDef, 0, len(setDefs))
	for i := range setDefs {
		if !setDefs[i].hashed {
			out = append(out, &setDefs[i])
		}
	}
	return out
}

// hashedKind returns the kind of the consistent hash tables in the set of a kind of endpoints.
func hashedKind(endpoints dataplane.Kind) dataplane.Kind {
	return endpoints - kindEndpoints + kindHashed
}
