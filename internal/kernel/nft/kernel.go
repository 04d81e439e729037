package nft

import "context"

// Kernel is the interface between a data plane and nftables. All methods but Watch must be called from one goroutine.
type Kernel interface {
	// Commit sends b as one transaction: all of it is applied or nothing. It returns the resulting generation: that of
	// this commit or, if b changed nothing, the current one. Errors: *[BatchError] when the kernel rejected
	// operations, [ErrGeneration] when b.Expect is no longer the current generation (nothing was applied), else transport
	// errors after which the caller must read the kernel's state again. b may be committed again unchanged.
	Commit(ctx context.Context, b *Batch) (Generation, error)
	// Generation returns the current generation of the namespace's rule set; each write by any program increments it. It waits
	// for a commit in progress.
	Generation(ctx context.Context) (Generation, error)
	// Tables returns the tables of all families. It waits as Generation does. A caller that reads a snapshot reads the generation,
	// the tables, the rest, and the generation again: if it is unchanged, the snapshot is complete and without duplicates, because
	// no commit was in progress during the reads (netlink.Conn.Settle).
	Tables(ctx context.Context) ([]Table, error)
	// Sets, Chains and Rules return the objects of one table. Anonymous sets are included. A missing table is an empty list.
	// Sets, Rules and Elements deliver everything also when they end with [ErrInterrupted]: see there.
	Sets(ctx context.Context, t TableRef) ([]Set, error)
	Chains(ctx context.Context, t TableRef) ([]Chain, error)
	Rules(ctx context.Context, t TableRef) ([]Rule, error)
	// Elements streams a set. The slices of an Element are valid only until emit returns. An error of emit ends the dump and
	// is returned. A missing set is an error that wraps ENOENT.
	Elements(ctx context.Context, s SetRef, emit func(*Element) error) error
	// Watch calls moved once when it is subscribed, with a Lost at the current generation, then after each commit by any program
	// but this Kernel, in order. It returns when ctx ends or the socket fails; after that it may be called again. It may run
	// concurrently with the other methods.
	// Subscribe after the first full build if possible: while a listener exists the kernel builds a message per element.
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

// Next returns the generation after g: the kernel skips 0 when it wraps around.
func (g Generation) Next() Generation {
	if g+1 == 0 {
		return 1
	}
	return g + 1
}

// After reports whether g is later than h.
func (g Generation) After(h Generation) bool { return int32(g-h) > 0 }

// Family is an nftables family (NFPROTO_*).
type Family uint8

// The families in use.
const (
	Inet   Family = 1
	IPv4   Family = 2
	Netdev Family = 5
	IPv6   Family = 10
)

// AddrLen returns the length of the family's addresses in bytes.
func (f Family) AddrLen() int {
	if f == IPv6 {
		return 16
	}
	return 4
}

// String returns nft's keyword for the family.
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

// TableRef identifies a table.
type TableRef struct {
	Family Family
	Name   string
}

// Set returns the reference of a set or map of the table.
func (t TableRef) Set(name string) SetRef { return SetRef{Table: t, Name: name} }

// Chain returns the reference of a chain of the table.
func (t TableRef) Chain(name string) ChainRef { return ChainRef{Table: t, Name: name} }

// SetRef identifies a set or map.
type SetRef struct {
	Table TableRef
	Name  string
}

// ChainRef identifies a chain.
type ChainRef struct {
	Table TableRef
	Name  string
}

// String returns nft's notation: family table.
func (t TableRef) String() string { return t.Family.String() + " " + t.Name }

// String returns nft's notation: family table set.
func (s SetRef) String() string { return s.Table.String() + " " + s.Name }

// String returns nft's notation: family table chain.
func (c ChainRef) String() string { return c.Table.String() + " " + c.Name }
