package nft

import "context"

// Kernel is what a data plane may ask of nftables. All methods but Watch belong to one goroutine.
type Kernel interface {
	// Commit sends b as one transaction: everything in it or nothing. It returns the generation that stands after it: the one
	// this very commit made, or, if b changed nothing, the current one. Errors: *[BatchError] when the kernel refused
	// operations, [ErrGeneration] when b.Expect is no longer the current generation (nothing was applied), else transport
	// errors after which the caller must read the kernel again. b may be committed again as it is.
	Commit(ctx context.Context, b *Batch) (Generation, error)
	// Generation returns the current generation of the namespace's rule set; any write of anybody moves it. It waits for a
	// commit that is at work.
	Generation(ctx context.Context) (Generation, error)
	// Tables returns the tables of all families. It waits as Generation does. Who reads much asks for the generation, the tables,
	// the rest, and the generation again: if that is the same, he has read all, and once, because no commit was
	// at work meanwhile (netlink.Conn.Settle).
	Tables(ctx context.Context) ([]Table, error)
	// Sets, Chains and Rules return what one table holds. Anonymous sets are included. A missing table is an empty list.
	// Sets, Rules and Elements deliver everything also when they end with [ErrInterrupted]: see there.
	Sets(ctx context.Context, t TableRef) ([]Set, error)
	Chains(ctx context.Context, t TableRef) ([]Chain, error)
	Rules(ctx context.Context, t TableRef) ([]Rule, error)
	// Elements streams a set. The slices of an Element are valid only until emit returns. An error of emit ends the dump and
	// is returned. A missing set is an error that wraps ENOENT.
	Elements(ctx context.Context, s SetRef, emit func(*Element) error) error
	// Watch calls moved once when it is subscribed, with a Lost at the current generation, then after each commit of anybody
	// but this Kernel, in order. It returns when ctx ends or the socket fails, and may be called again then. It may run beside
	// the other methods.
	// Subscribe after the first full build if you can: while anyone listens the kernel builds a message per element.
	Watch(ctx context.Context, moved func(Move)) error
}

// Reader is the part of a Kernel that reads whole tables.
type Reader interface {
	Generation(ctx context.Context) (Generation, error)
	Tables(ctx context.Context) ([]Table, error)
	Sets(ctx context.Context, t TableRef) ([]Set, error)
	Chains(ctx context.Context, t TableRef) ([]Chain, error)
	Rules(ctx context.Context, t TableRef) ([]Rule, error)
	Elements(ctx context.Context, s SetRef, emit func(*Element) error) error
}

var _ Reader = Kernel(nil)

// Generation is the kernel's rule set generation. It is never 0; 0 stands for "unknown".
type Generation uint32

// Next is the generation after g: the kernel skips 0 when it wraps.
func (g Generation) Next() Generation {
	if g+1 == 0 {
		return 1
	}
	return g + 1
}

// After says whether g came after h.
func (g Generation) After(h Generation) bool { return int32(g-h) > 0 }

// Family is an nftables family (NFPROTO_*).
type Family uint8

// The families that we use.
const (
	Inet   Family = 1
	IPv4   Family = 2
	Netdev Family = 5
	IPv6   Family = 10
)

// AddrLen is the length of the family's addresses in bytes.
func (f Family) AddrLen() int {
	if f == IPv6 {
		return 16
	}
	return 4
}

// String is nft's word for the family.
func (f Family) String() string {
	switch f {
	case Inet:
		return "inet"
	case IPv4:
		return "ip"
	case Netdev:
		return "netdev"
	case IPv6:
		return "ip6"
	}
	return "unspec"
}

// TableRef names a table.
type TableRef struct {
	Family Family
	Name   string
}

// Set names a set or map of the table.
func (t TableRef) Set(name string) SetRef { return SetRef{Table: t, Name: name} }

// Chain names a chain of the table.
func (t TableRef) Chain(name string) ChainRef { return ChainRef{Table: t, Name: name} }

// SetRef names a set or map.
type SetRef struct {
	Table TableRef
	Name  string
}

// ChainRef names a chain.
type ChainRef struct {
	Table TableRef
	Name  string
}

// String is nft's way of naming: family table.
func (t TableRef) String() string { return t.Family.String() + " " + t.Name }

// String is nft's way of naming: family table set.
func (s SetRef) String() string { return s.Table.String() + " " + s.Name }

// String is nft's way of naming: family table chain.
func (c ChainRef) String() string { return c.Table.String() + " " + c.Name }
