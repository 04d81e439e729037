package nftables

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// IDs are packed: address (4 or 16 bytes), protocol (1), port (2), with the
// parts that the kind's ident names. A node holds several per Frontend, so they
// are kept at half of what the kernel's padded keys take.

const present = "\x01" // the value of an object that has none

func addrLen(f model.Family) int {
	if f == model.IPv6 {
		return 16
	}
	return 4
}

// slotWidth is address and port of one endpoint.
func slotWidth(f model.Family) int { return addrLen(f) + 2 }

func appendID(b []byte, k model.FrontendKey) []byte {
	if k.Addr.IsValid() {
		b = nft.AppendAddr(b, k.Addr)
	}
	return append(b, byte(k.Protocol), byte(k.Port>>8), byte(k.Port))
}

// appendKey turns an ID into the kernel's key: every part padded to 4 bytes.
func appendKey(b []byte, w ident, id string) []byte {
	addr := len(id) - 3
	switch w {
	case identAddr:
		return append(b, id...)
	case identHairpin:
		b = append(append(b, id[:addr]...), id[:addr]...)
	case identVIP:
		b = append(b, id[:addr]...)
	}
	return append(b, id[addr], 0, 0, 0, id[addr+1], id[addr+2], 0, 0)
}

// keyLen is the length of the kernel's key of an ident.
func keyLen(w ident, f model.Family) int {
	switch w {
	case identAddr:
		return addrLen(f)
	case identVIP:
		return addrLen(f) + 8
	case identHairpin:
		return 2*addrLen(f) + 8
	case identNodePort:
		return 8
	}
	return 0
}

// appendIDOf is the reverse of appendKey; key has keyLen bytes. It reports false
// for a key that appendKey does not make.
func appendIDOf(b []byte, w ident, key []byte) ([]byte, bool) {
	tail := len(key) - 8
	switch w {
	case identAddr:
		return append(b, key...), true
	case identVIP:
		b = append(b, key[:tail]...)
	case identHairpin:
		half := tail / 2
		if string(key[:half]) != string(key[half:tail]) {
			return b, false
		}
		b = append(b, key[:half]...)
	}
	return append(b, key[tail], key[tail+4], key[tail+5]), true
}

// Stray elements are identified by what deletes them.
func strayID(set string, e *nft.Element) string {
	id := make([]byte, 0, len(set)+4+len(e.Key)+len(e.KeyEnd))
	id = append(id, byte(len(set)))
	id = append(id, set...)
	id = append(id, byte(e.Flags), byte(len(e.Key)))
	id = append(id, e.Key...)
	return string(append(id, e.KeyEnd...))
}

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

// KeyString implements dataplane.KeyStringer: "services 10.96.0.1:80/TCP".
func (d *Driver) KeyString(k dataplane.Key) string {
	switch k.Kind {
	case dataplane.KindRoot:
		return "table " + tableRef(k.Family).String()
	case kindSet:
		return "set " + tableRef(k.Family).Set(k.ID).String()
	case kindLeafChain, kindOuterChain, kindBaseChain:
		return "chain " + tableRef(k.Family).Chain(k.ID).String()
	case kindStray:
		set, e := parseStrayID(k.ID)
		return fmt.Sprintf("foreign element %x of %s", e.Key, tableRef(k.Family).Set(set))
	}
	def := defOf(k.Kind)
	if def == nil {
		return k.String()
	}
	switch def.ident {
	case identNone:
		return def.name + " " + k.Family.String()
	case identAddr:
		if a, ok := netip.AddrFromSlice([]byte(k.ID)); ok {
			return def.name + " " + a.String()
		}
	default:
		if f, ok := frontendOf(k); ok {
			return def.name + " " + f.String()
		}
	}
	return k.String()
}

// frontendOf reads an ID that ends with protocol and port.
func frontendOf(k dataplane.Key) (model.FrontendKey, bool) {
	n := len(k.ID) - 3
	if n < 0 {
		return model.FrontendKey{}, false
	}
	f := model.FrontendKey{Family: k.Family, Protocol: model.Protocol(k.ID[n]), Port: uint16(k.ID[n+1])<<8 | uint16(k.ID[n+2])}
	if n > 0 {
		a, ok := netip.AddrFromSlice([]byte(k.ID[:n]))
		if !ok {
			return f, false
		}
		f.Addr = a
	}
	return f, true
}

// tableRef names our table of a family.
func tableRef(f model.Family) nft.TableRef {
	return nft.TableRef{Family: nftFamily(f), Name: tableName}
}

func nftFamily(f model.Family) nft.Family {
	if f == model.IPv6 {
		return nft.IPv6
	}
	return nft.IPv4
}
