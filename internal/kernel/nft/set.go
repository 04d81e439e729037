package nft

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// SetFlags are NFT_SET_*.
type SetFlags uint32

// Set flags.
const (
	SetAnonymous SetFlags = 1 << iota
	SetConstant
	SetInterval
	SetMap
	SetTimeout
	SetDynamic // packets may add (update) elements
	_          // NFT_SET_OBJECT
	SetConcat  // interval over a concatenation; SetSpec sets it automatically
)

// dataVerdict is NFT_DATA_VERDICT: the data type of verdict maps.
const dataVerdict = 0xffffff00

// SetSpec declares a set, a map (Data) or a verdict map (Verdicts). It is encoded with the user data that nft 1.0.6
// would write, because without it `nft list` aborts on the agent's maps.
type SetSpec struct {
	Ref      SetRef
	Key      []Part
	Data     []Part // value of a map
	Verdicts bool   // the value is a verdict
	// Typeof prints the set as `typeof ip daddr . …` instead of `type ipv4_addr . …`: needed where a part is a Slot.
	Typeof  bool
	Flags   SetFlags      // SetInterval, SetTimeout, SetDynamic, SetConstant; SetMap and SetConcat follow from the rest
	Size    uint32        // 0: unbounded. Exceeding it fails the batch
	Timeout time.Duration // default for elements; needs SetTimeout
}

// flags returns the flags as the kernel stores them.
func (s *SetSpec) flags() SetFlags {
	f := s.Flags
	if s.Verdicts || len(s.Data) > 0 {
		f |= SetMap
	}
	if f&SetInterval != 0 && len(s.Key) > 1 {
		f |= SetConcat
	}
	return f
}

// partsType returns nft's type number and the byte length of a concatenation; a single part has its own length, parts of a
// concatenation are padded to registers.
func partsType(parts []Part) (typ, length uint32) {
	if len(parts) == 1 {
		return parts[0].dataType(), uint32(parts[0].size())
	}
	for _, p := range parts {
		typ = typ<<6 | p.dataType()
		length += uint32(align4(p.size()))
	}
	return typ, length
}

// fields returns the byte lengths of a concatenation's parts; the kernel requires them for intervals only.
func (s *SetSpec) fields() []uint8 {
	if s.flags()&SetConcat == 0 {
		return nil
	}
	out := make([]uint8, 0, len(s.Key))
	for _, p := range s.Key {
		out = append(out, uint8(p.size()))
	}
	return out
}

// Row returns the row of s in a set dump, except for its handle.
func (s *SetSpec) Row() Set {
	r := Set{Ref: s.Ref, Flags: s.flags(), Size: s.Size, Timeout: s.Timeout, Fields: s.fields(), UserData: s.UserData()}
	r.KeyType, r.KeyLen = partsType(s.Key)
	switch {
	case s.Verdicts:
		r.DataType = dataVerdict
	case len(s.Data) > 0:
		r.DataType, r.DataLen = partsType(s.Data)
	}
	return r
}

// Matches reports whether the dumped row is the set that s declares, so that the set need not be rebuilt.
func (s *SetSpec) Matches(row Set) bool {
	w := s.Row()
	return w.Ref == row.Ref && w.Flags == row.Flags && w.KeyType == row.KeyType && w.KeyLen == row.KeyLen &&
		w.DataType == row.DataType && (w.DataType == dataVerdict || w.DataLen == row.DataLen) &&
		w.Size == row.Size && w.Timeout == row.Timeout &&
		slices.Equal(w.Fields, row.Fields) && slices.Equal(w.UserData, row.UserData)
}

// append encodes the attributes of NEWSET in the order in which the kernel dumps them.
func (s *SetSpec) append(b []byte, id uint32) []byte {
	r := s.Row()
	b = appendString(b, unix.NFTA_SET_TABLE, r.Ref.Table.Name)
	b = appendString(b, unix.NFTA_SET_NAME, r.Ref.Name)
	b = appendU32(b, unix.NFTA_SET_FLAGS, uint32(r.Flags))
	b = appendU32(b, unix.NFTA_SET_KEY_TYPE, r.KeyType)
	b = appendU32(b, unix.NFTA_SET_KEY_LEN, r.KeyLen)
	if r.Flags&SetMap != 0 {
		b = appendU32(b, unix.NFTA_SET_DATA_TYPE, r.DataType)
		if r.DataType != dataVerdict {
			b = appendU32(b, unix.NFTA_SET_DATA_LEN, r.DataLen)
		}
	}
	b = appendU32(b, unix.NFTA_SET_ID, id)
	if r.Timeout > 0 {
		b = appendU64(b, unix.NFTA_SET_TIMEOUT, uint64(r.Timeout.Milliseconds()))
	}
	b = appendBytes(b, unix.NFTA_SET_USERDATA, r.UserData)
	return appendSetDesc(b, r.Size, r.Fields)
}

func appendSetDesc(b []byte, size uint32, fields []uint8) []byte {
	if size == 0 && len(fields) == 0 {
		return b
	}
	b, desc := openNest(b, unix.NFTA_SET_DESC)
	if size > 0 {
		b = appendU32(b, unix.NFTA_SET_DESC_SIZE, size)
	}
	if len(fields) > 0 {
		var concat int
		b, concat = openNest(b, nftaSetDescConcat)
		for _, n := range fields {
			var elem int
			b, elem = openNest(b, unix.NFTA_LIST_ELEM)
			b = appendU32(b, nftaSetFieldLen, uint32(n))
			closeNest(b, elem)
		}
		closeNest(b, concat)
	}
	closeNest(b, desc)
	return b
}
