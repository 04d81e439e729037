package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Table is the connection tracking table of one network namespace.
type Table interface {
	// Flows calls emit for every flow that f matches. The Flow is a value and may
	// be kept. It returns ErrInterrupted if the kernel reports a change of the table during the
	// dump: the emitted flows are valid, but others may be missing.
	Flows(ctx context.Context, f Filter, emit func(Flow)) error

	// Delete deletes flows and returns the number that still existed. A flow that no longer
	// exists, or whose tuple a newer flow has, is no error.
	Delete(ctx context.Context, flows []Flow) (int, error)

	Close() error
}

// ErrInterrupted: a dump may be incomplete.
var ErrInterrupted = errors.New("conntrack dump interrupted by a concurrent change")

// Family is an address family in nfnetlink's numbering.
type Family uint8

// The families.
const (
	IPv4 Family = unix.AF_INET
	IPv6 Family = unix.AF_INET6
)

// Filter selects flows; a zero field matches all. Ports need a
// Protocol.
type Filter struct {
	Family    Family
	Protocol  uint8 // IANA number
	OrigDst   netip.Addr
	OrigPort  uint16 // destination port of the original direction
	ReplySrc  netip.Addr
	ReplyPort uint16 // source port of the reply direction
	// Unanswered: no packet of the reply direction was seen, and a TCP connection is not Open.
	Unanswered bool
}

// Matches reports whether the filter selects a flow.
func (f *Filter) Matches(x *Flow) bool {
	return (f.Family == 0 || f.Family == x.Family) && (f.Protocol == 0 || f.Protocol == x.Protocol) &&
		(!f.OrigDst.IsValid() || f.OrigDst == x.Orig.Dst.Addr()) && (f.OrigPort == 0 || f.OrigPort == x.Orig.Dst.Port()) &&
		(!f.ReplySrc.IsValid() || f.ReplySrc == x.Reply.Src.Addr()) && (f.ReplyPort == 0 || f.ReplyPort == x.Reply.Src.Port()) &&
		(!f.Unanswered || !x.Replied && !x.Open)
}

// Tuple is one direction of a flow.
type Tuple struct{ Src, Dst netip.AddrPort }

// Flow is one entry of the table.
type Flow struct {
	Family      Family
	Protocol    uint8
	Zone        uint16
	zoneInTuple bool   // the zone is valid for the original direction only
	ID          uint32 // distinguishes the flow from a later one of the same tuple
	Offloaded   bool   // a flowtable forwards its packets without evaluating any rule
	Orig, Reply Tuple
	Replied     bool // a packet of the reply direction was seen
	// Packets and Bytes are the sums of both directions, 0 if conntrack accounting is off.
	Packets, Bytes uint64
	Open           bool // a TCP connection past its first SYN that was not refused; the kernel may see one direction only
}

// Translated reports whether the flow's destination was changed (DNAT).
func (x *Flow) Translated() bool { return x.Orig.Dst != x.Reply.Src }

// String returns the notation of errors and logs.
func (x *Flow) String() string {
	return fmt.Sprintf("protocol %d %s -> %s, reply from %s, zone %d", x.Protocol, x.Orig.Src, x.Orig.Dst, x.Reply.Src, x.Zone)
}
