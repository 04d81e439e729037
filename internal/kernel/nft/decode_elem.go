package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// elementDecoder decodes element lists into one reused Element. Chain names of verdicts repeat, so each is allocated once.
type elementDecoder struct {
	chains map[string]string
	e      Element
}

// list emits the elements of one message; their slices lie in it.
func (d *elementDecoder) list(attrs []byte, emit func(*Element) error) error {
	var err error
	netlink.EachAttr(attrs, func(typ uint16, list []byte) {
		if typ != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			return
		}
		netlink.EachAttr(list, func(_ uint16, elem []byte) {
			if err != nil {
				return
			}
			d.element(elem)
			err = emit(&d.e)
		})
	})
	return err
}

func (d *elementDecoder) element(attrs []byte) {
	d.e = Element{}
	e := &d.e
	netlink.EachAttr(attrs, func(typ uint16, v []byte) {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			e.Key = dataValue(v)
		case nftaElemKeyEnd:
			e.KeyEnd = dataValue(v)
		case unix.NFTA_SET_ELEM_DATA:
			e.Data = dataValue(v)
			if e.Data == nil {
				e.Verdict = d.verdict(v)
			}
		case unix.NFTA_SET_ELEM_FLAGS:
			e.Flags = ElementFlags(be32(v))
		case unix.NFTA_SET_ELEM_TIMEOUT:
			e.Timeout = duration(v)
		case unix.NFTA_SET_ELEM_EXPIRATION:
			e.Expiration = duration(v)
		case unix.NFTA_SET_ELEM_USERDATA:
			e.UserData = v
		case unix.NFTA_SET_ELEM_EXPR:
			e.Packets = countedPackets(v)
		}
	})
}

// countedPackets reads the expression of an element, which is a counter where we put one.
func countedPackets(expr []byte) (n uint64) {
	netlink.EachAttr(expr, func(typ uint16, data []byte) {
		if typ != unix.NFTA_EXPR_DATA {
			return
		}
		netlink.EachAttr(data, func(typ uint16, v []byte) {
			if typ == unix.NFTA_COUNTER_PACKETS && len(v) >= 8 {
				n = binary.BigEndian.Uint64(v)
			}
		})
	})
	return n
}

func dataValue(d []byte) []byte {
	var out []byte
	netlink.EachAttr(d, func(typ uint16, v []byte) {
		if typ == unix.NFTA_DATA_VALUE {
			out = v
		}
	})
	return out
}

func (d *elementDecoder) verdict(data []byte) Verdict {
	var v Verdict
	netlink.EachAttr(data, func(typ uint16, nest []byte) {
		if typ != unix.NFTA_DATA_VERDICT {
			return
		}
		netlink.EachAttr(nest, func(typ uint16, b []byte) {
			switch typ {
			case unix.NFTA_VERDICT_CODE:
				v.Code = verdictOf(int32(be32(b)))
			case unix.NFTA_VERDICT_CHAIN:
				v.Chain = d.intern(cstr(b))
			}
		})
	})
	return v
}

func (d *elementDecoder) intern(name []byte) string {
	if s, ok := d.chains[string(name)]; ok {
		return s
	}
	s := string(name)
	d.chains[s] = s
	return s
}
