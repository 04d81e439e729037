package iptables

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
)

// x_tables keeps a table as one array of entries (struct ipt_entry, ip6t_entry): a head, the
// matches, a target. A user-defined chain begins with an entry whose target ERROR
// holds its name; a built-in chain begins at the offset in the table's head. The last entry of
// each chain is no rule: it is the chain's policy, or a RETURN for a chain without one. A jump
// is the offset of the first entry of a chain from the begin of the table.

// read implements tableReader.
func (x *xtables) read(ctx context.Context, r Reading, emit func([]byte) error) error {
	known := x.digests.since(&r)
	head, rules, release, err := x.of(r.Family, r.Table).rules()
	switch {
	case err == nil:
		defer release()
	case absent(err):
		return nil
	default:
		return fmt.Errorf("%w: table %s: %w", ErrUnreadable, r.Table, err)
	}
	e := entries{layout: layoutOf(r.Family), rules: rules, seed: x.digests.seed, known: known}
	if !e.findChains(&head, r.Ours) {
		return fmt.Errorf("%w: table %s has an unknown layout", ErrUnreadable, r.Table)
	}
	if r.Began == nil {
		return e.print(ctx, r, emit)
	}
	now := x.digests.mark()
	r.Began(now)
	if err := e.print(ctx, r, emit); err != nil {
		return err
	}
	x.digests.keep(&r, now, e.found())
	return nil
}

// print emits the owned chains that are not skipped, then their rules and the requested rules of built-in chains.
func (e *entries) print(ctx context.Context, r Reading, emit func([]byte) error) error {
	var line []byte
	for i := range e.chains {
		c := &e.chains[i]
		if !c.ours {
			continue
		}
		if c.left = r.Same != nil && c.untouched() && r.Same(c.name); c.left {
			continue
		}
		line = append(append(append(line[:0], ':'), c.name...), " - [0:0]"...)
		if err := emit(line); err != nil {
			return err
		}
	}
	for i := range e.chains {
		c := &e.chains[i]
		if c.left || !c.ours && !c.builtIn {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		line = append(append(line[:0], "-A "...), c.name...)
		if line, err = e.printChain(line, c, emit); errors.Is(err, ErrUnreadable) {
			return fmt.Errorf("%w: table %s has unknown data after %q", err, r.Table, line)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// entries are the rules of one table.
type entries struct {
	layout layout
	rules  []byte
	chains []xchain // in the order of the table
	// numbers maps offset/smallestEntry to the index in chains of the chain that begins there, plus one.
	numbers []uint32
	jumps   []uint32 // jump offsets of the rules of owned chains, chain by chain
	seed    maphash.Seed
	known   map[string]knownChain
}

// xchain is a chain, from its first entry to that of its policy.
type xchain struct {
	name    string
	at, end uint32
	builtIn bool
	ours    bool
	clean   bool   // its name contains no space and no control character
	left    bool   // it is skipped
	before  uint64 // its digest in the previous read; 0: it did not exist
	digest  uint64 // 0: unknown
	jumps   int    // number of its entries in entries.jumps
}

// layout holds the offsets of the fields in an entry's head.
type layout struct {
	family           xt.Family
	address          int // bytes
	interfaces       int // two names, then their masks, of 16 bytes each
	protocol         int // then the flags: see below
	flags, inverted  int
	goTo, protoIsSet byte // flags
	offsets          int  // of target and of the next entry
	size             int
}

func layoutOf(f Family) layout {
	if f == IPv6 {
		return layout{family: xt.IPv6, address: 16, interfaces: 64, protocol: 128, flags: 131, inverted: 132, goTo: 4, protoIsSet: 1, offsets: 140, size: 168}
	}
	return layout{family: xt.IPv4, address: 4, interfaces: 16, protocol: 80, flags: 82, inverted: 83, goTo: 2, offsets: 88, size: 112}
}

// hookNames is indexed by the kernel's hook numbers (NF_INET_PRE_ROUTING and on).
var hookNames = [...]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// A target and a match both begin with their size, name and revision (struct
// xt_entry_target).
const (
	extensionName     = 2
	extensionRevision = 31
	extensionHead     = 32
)

// entry is the bytes of one rule and the offset of its target.
type entry struct {
	bytes  []byte
	target int
}

// at returns the entry at an offset; false if the entry or one of its parts exceeds its bounds.
func (e *entries) at(at uint32) (entry, bool) {
	if uint64(at)+uint64(e.layout.size) > uint64(len(e.rules)) {
		return entry{}, false
	}
	b := e.rules[at:]
	target, next := int(u16(b[e.layout.offsets:])), int(u16(b[e.layout.offsets+2:]))
	if target < e.layout.size || next < target+extensionHead || next > len(b) || next%8 != 0 {
		return entry{}, false
	}
	return entry{b[:next], target}, true
}

func (n *entry) targetName() []byte {
	return field(n.bytes[n.target+extensionName:][:extensionRevision-extensionName])
}

// beginsChain reports whether the entry is the head of a user-defined chain.
func (n *entry) beginsChain() bool {
	const name = "ERROR\x00"
	return string(n.bytes[n.target+extensionName:][:len(name)]) == name
}

// field returns the bytes up to the first NUL.
func field(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}

func u16(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }

func u32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }
