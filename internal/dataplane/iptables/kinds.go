package iptables

import (
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// The kinds, in creation order: a chain jumps to chains of lower kinds only, or,
// among buckets, to deeper ones.
const (
	kindMark     = dataplane.KindRoot + 1 + iota // KUBE-MARK-MASQ and its like
	kindService                                  // KUBE-SVC-, KUBE-SVL-: the endpoints
	kindExternal                                 // KUBE-EXT-
	kindFirewall                                 // KUBE-FW-
	kindStray                                    // a chain of kube-proxy's that the driver never makes, as Load found it
	kindBucket                                   // a shared chain itself, regardless of its lines
	kindBase                                     // fixed chains that jump to roots of shared ones
	kindLine                                     // one line of a shared chain
	kindJump                                     // one rule in a built-in chain
	kinds
)

// An ID is the table's letter, the chain's name and, for lines and jumps, a NUL
// and the rule's text as iptables-save prints it, without "-A CHAIN ".
const sep = "\x00"

// present is the value of a line, a jump and a shared chain.
const present = "\x01"

// emptyBody is the value of a chain without rules.
const emptyBody = "-"

// Shared implements dataplane.Driver: all is, but for the chains of one Service port and the lines that
// jump to them, which have a comment.
func (d *Driver) Shared(k dataplane.Key) bool {
	switch k.Kind {
	case kindService, kindExternal, kindFirewall:
		return false
	case kindLine:
		return !strings.Contains(k.ID, "--comment ")
	}
	return true
}

// table is one of the tables that the driver writes.
type table byte

const (
	nat    table = 'n'
	filter table = 'f'
	mangle table = 'm'
)

// String returns the name of the table for iptables-restore.
func (t table) String() string {
	switch t {
	case nat:
		return "nat"
	case filter:
		return "filter"
	}
	return "mangle"
}

// tables in the order in which they are read.
var tables = [...]table{nat, filter, mangle}

func tableNames() (out []string) {
	for _, t := range tables {
		out = append(out, t.String())
	}
	return out
}

// chainRef names a chain.
type chainRef struct {
	family model.Family
	table  table
	chain  string
}

func (c chainRef) id() string { return string(byte(c.table)) + c.chain }

func (c chainRef) line(rule string) string { return c.id() + sep + rule }

// chainOf splits a key; rule is "" unless it is a line or a jump.
func chainOf(k dataplane.Key) (c chainRef, rule string) {
	chain, rule, _ := strings.Cut(k.ID[1:], sep)
	return chainRef{k.Family, table(k.ID[0]), chain}, rule
}

// KeyString implements dataplane.Driver: "chain nat KUBE-SVC-X (IPv4)",
// "rule filter FORWARD -j KUBE-FORWARD (IPv4)".
func (d *Driver) KeyString(k dataplane.Key) string {
	if k.Kind <= dataplane.KindRoot || k.Kind >= kinds || len(k.ID) < 2 {
		return k.String()
	}
	c, rule := chainOf(k)
	if rule != "" {
		return "rule " + c.table.String() + " " + c.chain + " " + strings.ReplaceAll(rule, sep, " ") + " (" + k.Family.String() + ")"
	}
	return "chain " + c.table.String() + " " + c.chain + " (" + k.Family.String() + ")"
}

func kernelFamily(f model.Family) iptables.Family { return iptables.Family(f) }

var bothFamilies = [...]model.Family{model.IPv4, model.IPv6}
