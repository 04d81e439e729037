package nft

import "time"

// Table is one row of a table dump.
type Table struct {
	Ref      TableRef
	Flags    TableFlags
	Use      uint32 // number of chains, sets, objects and flowtables in it
	Handle   uint64
	Owner    uint32 // port id of the owning socket when Flags has TableOwner
	UserData []byte
}

// TableFlags are NFT_TABLE_F_*.
type TableFlags uint32

// Table flags.
const (
	TableDormant TableFlags = 1 << iota
	TableOwner              // only the owning socket may change it
)

// Set is one row of a set dump.
type Set struct {
	Ref               SetRef
	Flags             SetFlags
	KeyType, KeyLen   uint32
	DataType, DataLen uint32 // DataType 0xffffff00: verdicts
	Size              uint32 // 0: unbounded
	Timeout           time.Duration
	Handle            uint64
	Fields            []uint8 // byte lengths of the parts of a concatenation, if they were declared
	UserData          []byte
	Count             uint32 // number of elements, including recently expired ones; only if Counted
	Counted           bool   // the kernel reports Count (6.16)
}

// Verdicts reports whether the set is a map of verdicts.
func (s *Set) Verdicts() bool { return s.Flags&SetMap != 0 && s.DataType == dataVerdict }

// Chain is one row of a chain dump.
type Chain struct {
	Ref      ChainRef
	Handle   uint64
	Use      uint32 // number of references: jumps, verdict elements and its own rules
	Flags    uint32
	Hook     *Hook // nil for a chain that is reached only from other chains
	UserData []byte
}

// Rule is one row of a rule dump.
type Rule struct {
	Chain    ChainRef
	Handle   uint64
	Exprs    []byte // the expressions as the kernel writes them; compare with NormalizeExprs
	UserData []byte
}

// Element is an element of a set or map, to write or as read.
type Element struct {
	Key, KeyEnd []byte  // KeyEnd: inclusive end, for intervals over concatenations only
	Data        []byte  // value of a map
	Verdict     Verdict // value of a verdict map
	Flags       ElementFlags
	Timeout     time.Duration // 0: the set's
	Expiration  time.Duration // remaining lifetime, read only
	UserData    []byte        // see Comment
	Packets     uint64        // of its counter, read only; 0 without one
}

// ElementFlags are NFT_SET_ELEM_*.
type ElementFlags uint32

// Element flags.
const (
	ElementIntervalEnd ElementFlags = 1 << iota // first key after an interval, in plain interval sets
	ElementCatchall
)
