package nft

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// elementDecoder decodes element lists into one reused Element. Chain names of verdicts repeat, so each is allocated once.
type elementDecoder struct {
	chains map[string]string
	e      Element
	bytes  []byte // of the last verdict: a cache, because many elements have the same
	last   Verdict
}

// list emits the elements of one message; their slices point into it.
func (d *elementDecoder) list(attrs []byte, emit func(*Element) error) error {
	for list := (netlink.Attrs{Rest: attrs}); list.Next(); {
		if list.Type != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			continue
		}
		for elem := (netlink.Attrs{Rest: list.Data}); elem.Next(); {
			d.element(elem.Data)
			if err := emit(&d.e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *elementDecoder) element(attrs []byte) {
	d.e = Element{}
	e := &d.e
	for a := (netlink.Attrs{Rest: attrs}); a.Next(); {
		switch a.Type {
		case unix.NFTA_SET_ELEM_KEY:
			e.Key = dataValue(a.Data)
		case nftaElemKeyEnd:
			e.KeyEnd = dataValue(a.Data)
		case unix.NFTA_SET_ELEM_DATA:
			e.Data = dataValue(a.Data)
			if e.Data == nil {
				e.Verdict = d.verdict(a.Data)
			}
		case unix.NFTA_SET_ELEM_FLAGS:
			e.Flags = ElementFlags(be32(a.Data))
		case unix.NFTA_SET_ELEM_TIMEOUT:
			e.Timeout = duration(a.Data)
		case unix.NFTA_SET_ELEM_EXPIRATION:
			e.Expiration = duration(a.Data)
		case unix.NFTA_SET_ELEM_USERDATA:
			e.UserData = a.Data
		case unix.NFTA_SET_ELEM_EXPR:
			e.Packets = countedPackets(a.Data)
		}
	}
}

// countedPackets decodes the expression of an element, which is a counter if Update created it with one.
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

func dataValue(d []byte) (value []byte) {
	if u := (netlink.Attrs{Rest: d}); u.Next() && u.Type == unix.NFTA_DATA_VALUE && len(u.Rest) == 0 { // the usual case
		return u.Data
	}
	for a := (netlink.Attrs{Rest: d}); a.Next(); {
		if a.Type == unix.NFTA_DATA_VALUE {
			value = a.Data
		}
	}
	return value
}

func (d *elementDecoder) verdict(data []byte) Verdict {
	if !bytes.Equal(d.bytes, data) {
		d.bytes, d.last = append(d.bytes[:0], data...), d.decodeVerdict(data)
	}
	return d.last
}

func (d *elementDecoder) decodeVerdict(data []byte) (v Verdict) {
	for a := (netlink.Attrs{Rest: data}); a.Next(); {
		if a.Type != unix.NFTA_DATA_VERDICT {
			continue
		}
		for part := (netlink.Attrs{Rest: a.Data}); part.Next(); {
			switch part.Type {
			case unix.NFTA_VERDICT_CODE:
				v.Code = verdictOf(int32(be32(part.Data)))
			case unix.NFTA_VERDICT_CHAIN:
				v.Chain = d.intern(cstr(part.Data))
			}
		}
	}
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
