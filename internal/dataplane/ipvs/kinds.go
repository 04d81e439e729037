package ipvs

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// The kinds, in creation order.
const (
	kindSet    = dataplane.KindRoot + 1 + iota
	kindChain  // a chain and its rules; all chains are Base's
	kindDevice // kube-ipvs0, of the first family
	kindRule   // the routing rule for packets with the mark; its value is the mark
	kindNodePortIP
	kindAddressKnown
	kindTaken // address, protocol and port of a Service at an address that may be another host's
	kindHairpin
	kindGuarded
	kindGuardedNodePort
	kindAllowed
	kindAllowedNodePort
	kindOwned // marks a virtual server as owned by the agent
	kindService
	kindNodePort
	kindVirtual
	kindReal
	kindWeight // of a real server; without it the real server gets no new connections
	kindAddress
	kindRoute // of the routing table of the rule: an address of which some ports are taken
	kinds     // the number of kinds
)

// Shared implements dataplane.Driver. Addresses are shared, and so are the objects of an endpoint's address.
func (d *Driver) Shared(k dataplane.Key) bool {
	switch k.Kind {
	case kindSet, kindChain, kindDevice, kindAddressKnown, kindHairpin, kindAddress, kindRoute:
		return true
	}
	return false
}

// Part implements dataplane.Parter. A real server is a part of its virtual server.
func (d *Driver) Part(k dataplane.Key) (whole dataplane.Key, is bool) {
	if k.Kind != kindReal && k.Kind != kindWeight {
		return dataplane.Key{}, false
	}
	return dataplane.Key{Kind: kindVirtual, Family: k.Family, ID: k.ID[:3+addrLen(k.Family)]}, true
}

// setDef declares one of the Driver's sets. Each element is an object of its kind, and its ID is the kernel's key.
type setDef struct {
	name     string
	kind     dataplane.Kind
	key      func(f nft.Family) []nft.Part
	verdicts bool
	ranges   bool // the last part of the key is a range
}

// setDefs are the sets of each table.
func setDefs() []setDef {
	addr := func(f nft.Family) []nft.Part { return []nft.Part{nft.Addr(f)} }
	vip := func(f nft.Family) []nft.Part { return []nft.Part{nft.Addr(f), nft.L4Proto, nft.Port} }
	port := func(nft.Family) []nft.Part { return []nft.Part{nft.L4Proto, nft.Port} }
	from := func(key func(nft.Family) []nft.Part) func(f nft.Family) []nft.Part {
		return func(f nft.Family) []nft.Part { return append(key(f), nft.Addr(f)) }
	}
	return []setDef{
		{name: "nodeport-ips", kind: kindNodePortIP, key: addr},
		{name: "addresses", kind: kindAddressKnown, key: addr},
		{name: "taken", kind: kindTaken, key: vip},
		{name: "hairpin", kind: kindHairpin, key: func(f nft.Family) []nft.Part { return append(addr(f), vip(f)...) }},
		{name: "fw-guarded", kind: kindGuarded, key: vip},
		{name: "fw-guarded-nodeports", kind: kindGuardedNodePort, key: port},
		{name: "fw-allowed", kind: kindAllowed, key: from(vip), ranges: true},
		{name: "fw-allowed-nodeports", kind: kindAllowedNodePort, key: from(port), ranges: true},
		{name: "virtual-servers", kind: kindOwned, key: vip},
		{name: "services", kind: kindService, key: vip, verdicts: true},
		{name: "nodeports", kind: kindNodePort, key: port, verdicts: true},
	}
}

func (d *setDef) spec(f model.Family) nft.SetSpec {
	s := nft.SetSpec{Ref: tableRef(f).Set(d.name), Key: d.key(nftFamily(f)), Verdicts: d.verdicts, Typeof: true}
	if d.ranges {
		s.Flags = nft.SetInterval
	}
	return s
}

// setsByKind returns the name of the set of each kind of element.
func setsByKind() (names [kinds]string) {
	for _, def := range setDefs() {
		names[def.kind] = def.name
	}
	return names
}

// isElement reports whether objects of a kind are elements of a set.
func isElement(k dataplane.Kind) bool { return k >= kindNodePortIP && k <= kindNodePort }

// inIPVS reports whether objects of a kind are in IPVS, on the device or in the routing tables, and not in the nftables table.
func inIPVS(k dataplane.Kind) bool { return k == kindDevice || k == kindRule || k >= kindVirtual }

func addrLen(f model.Family) int {
	if f == model.IPv6 {
		return 16
	}
	return 4
}

// vipKey returns the kernel's key of an address, protocol and port. Without the address it is the key of a NodePort.
func vipKey(k model.FrontendKey) []byte {
	var b []byte
	if k.Addr.IsValid() {
		b = nft.AppendAddr(b, k.Addr)
	}
	return nft.AppendPort(nft.AppendProto(b, uint8(k.Protocol)), k.Port)
}

// appendVirtual appends the ID of a virtual server: protocol, port, address. The ID of a real server has its port and address
// after that.
func appendVirtual(b []byte, k ipvs.VirtualKey) []byte {
	return nft.AppendAddr(binary.BigEndian.AppendUint16(append(b, k.Protocol), k.Port), k.Addr)
}

func virtualID(k ipvs.VirtualKey) string { return string(appendVirtual(nil, k)) }

func appendReal(b []byte, at netip.AddrPort) []byte {
	return nft.AppendAddr(binary.BigEndian.AppendUint16(b, at.Port()), at.Addr())
}

func realID(of string, at netip.AddrPort) string { return of + string(appendReal(nil, at)) }

func parseVirtual(id string, f model.Family) (ipvs.VirtualKey, string) {
	n := 3 + addrLen(f)
	a, _ := netip.AddrFromSlice([]byte(id[3:n])) // the agent made it from an address
	return ipvs.VirtualKey{Protocol: id[0], Port: uint16(id[1])<<8 | uint16(id[2]), Addr: a}, id[n:]
}

func parseReal(id string, f model.Family) (ipvs.VirtualKey, netip.AddrPort) {
	of, rest := parseVirtual(id, f)
	a, _ := netip.AddrFromSlice([]byte(rest[2:])) // as above
	return of, netip.AddrPortFrom(a, uint16(rest[0])<<8|uint16(rest[1]))
}

// KeyString implements dataplane.Driver.
func (d *Driver) KeyString(k dataplane.Key) string {
	switch {
	case k.Kind == dataplane.KindRoot:
		return "table " + tableRef(k.Family).String()
	case k.Kind == kindSet:
		return "set " + tableRef(k.Family).Set(k.ID).String()
	case k.Kind == kindChain:
		return "chain " + tableRef(k.Family).Chain(k.ID).String()
	case k.Kind == kindDevice:
		return "device " + ipvs.Device
	case k.Kind == kindRule:
		return "routing rule of " + k.Family.String() + " for packets to taken ports"
	case k.Kind == kindRoute:
		a, _ := netip.AddrFromSlice([]byte(k.ID)) // Render made it from an address
		return fmt.Sprintf("local route %s in table %d", a, ipvs.RouteTable)
	case k.Kind == kindVirtual:
		v, _ := parseVirtual(k.ID, k.Family)
		return "virtual server " + v.String()
	case k.Kind == kindReal, k.Kind == kindWeight:
		of, at := parseReal(k.ID, k.Family)
		what := "real server "
		if k.Kind == kindWeight {
			what = "weight of real server "
		}
		return what + at.String() + " of " + of.String()
	case k.Kind == kindAddress:
		a, _ := netip.AddrFromSlice([]byte(k.ID)) // as above
		return "address " + a.String() + " on " + ipvs.Device
	}
	for _, def := range setDefs() {
		if def.kind == k.Kind {
			return fmt.Sprintf("element %s of %s", def.text(k.ID, k.Family), tableRef(k.Family).Set(def.name))
		}
	}
	return k.String()
}

const tableName = "fairlead-ipvs"

func tableRef(f model.Family) nft.TableRef {
	return nft.TableRef{Family: nftFamily(f), Name: tableName}
}

func nftFamily(f model.Family) nft.Family {
	if f == model.IPv6 {
		return nft.IPv6
	}
	return nft.IPv4
}

// allFamilies returns both families, also if the Driver serves only one.
func allFamilies() [2]model.Family { return [2]model.Family{model.IPv4, model.IPv6} }

// text formats an element's ID, which is the kernel's key, for a range both ends.
func (d *setDef) text(id string, f model.Family) string {
	if d.ranges {
		first, last := d.words(id[:len(id)/2], f), d.words(id[len(id)/2:], f)
		return strings.Join(first, " ") + " to " + last[len(last)-1]
	}
	return strings.Join(d.words(id, f), " ")
}

func (d *setDef) words(key string, f model.Family) (out []string) {
	for _, part := range d.key(nftFamily(f)) {
		n := 4 // shorter parts are padded
		if part == nft.Addr(nftFamily(f)) {
			n = addrLen(f)
		}
		if len(key) < n {
			return append(out, fmt.Sprintf("%x", key)) // a foreign element, in a set of that name
		}
		switch part {
		case nft.L4Proto:
			out = append(out, model.Protocol(key[0]).String())
		case nft.Port:
			out = append(out, strconv.Itoa(int(key[0])<<8|int(key[1])))
		default:
			a, _ := netip.AddrFromSlice([]byte(key[:n])) // it has the length of an address
			out = append(out, a.String())
		}
		key = key[n:]
	}
	return out
}
