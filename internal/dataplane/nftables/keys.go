package nftables

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// IDs are packed: address (4 or 16 bytes), protocol (1), port (2); the kind's ident
// determines which of these parts an ID has. The agent holds several IDs per Frontend,
// so the packed form takes half the memory of the kernel's padded keys.

const present = "\x01" // the value of an object that has only a key

// addrLen returns the length of an address in bytes.
func addrLen(f model.Family) int {
	if f == model.IPv6 {
		return 16
	}
	return 4
}

// appendID appends the packed form of a Frontend's key.
func appendID(b []byte, k model.FrontendKey) []byte {
	if k.Addr.IsValid() {
		b = nft.AppendAddr(b, k.Addr)
	}
	b = append(b, byte(k.Protocol), byte(k.Port>>8), byte(k.Port))
	if k.Range() {
		b = append(b, byte(k.LastPort>>8), byte(k.LastPort))
	}
	return b
}

// tail returns how many bytes of an ID follow the address.
func (w ident) tail() int {
	switch w {
	case identVIP, identNodePort, identHairpin:
		return 3
	case identAddrProto, identPairProto:
		return 1
	case identRange:
		return 5
	}
	return 0
}

// appendKey appends the kernel's key of an ID: every part is padded to 4 bytes. For a
// range of ports it is the lower end.
func appendKey(b []byte, w ident, id string) []byte {
	addr, rest := id[:len(id)-w.tail()], id[len(id)-w.tail():]
	b = append(b, addr...)
	if w == identHairpin || w == identPairProto {
		b = append(b, addr...)
	}
	if len(rest) > 0 {
		b = append(b, rest[0], 0, 0, 0)
	}
	if len(rest) > 2 {
		b = append(b, rest[1], rest[2], 0, 0)
	}
	return b
}

// appendKeyEnd appends the upper end of a range of ports. For other idents it appends
// the key itself.
func appendKeyEnd(b []byte, w ident, id string) []byte {
	b = appendKey(b, w, id)
	if w == identRange {
		b = append(b[:len(b)-4], id[len(id)-2], id[len(id)-1], 0, 0)
	}
	return b
}

// keyLen returns the length of the kernel's key of an ident, in bytes.
func keyLen(w ident, f model.Family) int {
	a := addrLen(f)
	switch w {
	case identAddr:
		return a
	case identVIP, identRange:
		return a + 8
	case identHairpin:
		return 2*a + 8
	case identNodePort:
		return 8
	case identAddrProto:
		return a + 4
	case identPairProto:
		return 2*a + 4
	}
	return 0
}

// appendIDOf is the reverse of appendKey and appendKeyEnd. key and end have keyLen
// bytes each. It returns false for keys that those functions never return.
func appendIDOf(b []byte, w ident, key, end []byte) ([]byte, bool) {
	tail := 0
	switch w {
	case identVIP, identNodePort, identHairpin, identRange:
		tail = 8
	case identAddrProto, identPairProto:
		tail = 4
	}
	addr, rest := key[:len(key)-tail], key[len(key)-tail:]
	if w == identHairpin || w == identPairProto {
		half := len(addr) / 2
		if string(addr[:half]) != string(addr[half:]) {
			return b, false
		}
		addr = addr[:half]
	}
	b = append(b, addr...)
	if tail > 0 {
		b = append(b, rest[0])
	}
	if tail > 4 {
		b = append(b, rest[4], rest[5])
	}
	if w != identRange {
		return b, string(key) == string(end)
	}
	n := len(end) - 4
	return append(b, end[n], end[n+1]), string(key[:n]) == string(end[:n])
}

// strayID returns the ID of a stray element: its set, flags and keys, which are what
// its deletion needs.
func strayID(set string, e *nft.Element) string {
	id := make([]byte, 0, len(set)+4+len(e.Key)+len(e.KeyEnd))
	id = append(id, byte(len(set)))
	id = append(id, set...)
	id = append(id, byte(e.Flags), byte(len(e.Key)))
	id = append(id, e.Key...)
	return string(append(id, e.KeyEnd...))
}

// parseStrayID is the reverse of strayID.
func parseStrayID(id string) (set string, e nft.Element) {
	n := int(id[0])
	set, id = id[1:1+n], id[1+n:]
	e.Flags = nft.ElementFlags(id[0])
	n = int(id[1])
	e.Key = []byte(id[2 : 2+n])
	if end := id[2+n:]; end != "" {
		e.KeyEnd = []byte(end)
	}
	return set, e
}

// KeyString implements dataplane.Driver. Example: "services 10.96.0.1:80/TCP".
func (d *Driver) KeyString(k dataplane.Key) string {
	switch k.Kind {
	case dataplane.KindRoot:
		return "table " + tableRef(k.Family).String()
	case kindSet, kindClients:
		return "set " + tableRef(k.Family).Set(k.ID).String()
	case kindLeafChain, kindOuterChain, kindBaseChain:
		return "chain " + tableRef(k.Family).Chain(k.ID).String()
	case kindStickyRules:
		return "rules " + tableRef(k.Family).Chain(k.ID).String()
	case kindStray:
		set, e := parseStrayID(k.ID)
		return fmt.Sprintf("foreign element %x of %s", e.Key, tableRef(k.Family).Set(set))
	}
	def := defOf(k.Kind)
	if def == nil {
		return k.String()
	}
	name := def.name
	if def.hashed {
		name = "hashed-" + name
	}
	switch def.ident {
	case identNone:
		return name + " " + k.Family.String()
	case identAddr:
		if a, ok := netip.AddrFromSlice([]byte(k.ID)); ok {
			return name + " " + a.String()
		}
	default:
		if f, ok := frontendOf(k, def.ident); ok {
			return name + " " + f.String()
		}
	}
	return k.String()
}

// frontendOf returns the Frontend's key of an ID that has a protocol.
func frontendOf(k dataplane.Key, w ident) (model.FrontendKey, bool) {
	n := len(k.ID) - w.tail()
	if n < 0 {
		return model.FrontendKey{}, false
	}
	rest := k.ID[n:]
	f := model.FrontendKey{Family: k.Family, Protocol: model.Protocol(rest[0])}
	if len(rest) > 2 {
		f.Port = uint16(rest[1])<<8 | uint16(rest[2])
	}
	if len(rest) > 4 {
		f.LastPort = uint16(rest[3])<<8 | uint16(rest[4])
	}
	if n > 0 {
		a, ok := netip.AddrFromSlice([]byte(k.ID[:n]))
		if !ok {
			return f, false
		}
		f.Addr = a
	}
	return f, true
}

// tableRef returns the reference to the agent's table of a family.
func tableRef(f model.Family) nft.TableRef {
	return nft.TableRef{Family: nftFamily(f), Name: tableName}
}

func nftFamily(f model.Family) nft.Family {
	if f == model.IPv6 {
		return nft.IPv6
	}
	return nft.IPv4
}
