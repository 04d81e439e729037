package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// HookNum is NF_INET_*.
type HookNum uint32

// Hooks of the ip, ip6 and inet families.
const (
	HookPrerouting HookNum = iota
	HookInput
	HookForward
	HookOutput
	HookPostrouting
)

// Policy of a base chain.
type Policy uint32

// PolicyAccept is the policy that the agent uses; other programs also use PolicyDrop.
const (
	PolicyDrop   Policy = 0
	PolicyAccept Policy = 1
)

// Hook makes a chain a base chain.
type Hook struct {
	Type     string // filter, nat, route
	Num      HookNum
	Priority int32
	Policy   Policy
	Device   string // netdev family only
}

// ChainSpec declares a chain; without Hook one that is reached only from other chains and maps.
type ChainSpec struct {
	Ref      ChainRef
	Hook     *Hook
	UserData []byte
}

// RuleSpec declares a rule. Build Exprs with the functions that return an Expr.
type RuleSpec struct {
	Chain    ChainRef
	Exprs    []Expr
	UserData []byte
	First    bool // before the chain's other rules instead of after them
}

func (c *ChainSpec) append(b []byte) []byte {
	b = appendString(b, unix.NFTA_CHAIN_TABLE, c.Ref.Table.Name)
	b = appendString(b, unix.NFTA_CHAIN_NAME, c.Ref.Name)
	if h := c.Hook; h != nil {
		var off int
		b, off = openNest(b, unix.NFTA_CHAIN_HOOK)
		b = appendU32(b, unix.NFTA_HOOK_HOOKNUM, uint32(h.Num))
		b = appendU32(b, unix.NFTA_HOOK_PRIORITY, uint32(h.Priority))
		if h.Device != "" {
			b = appendString(b, unix.NFTA_HOOK_DEV, h.Device)
		}
		closeNest(b, off)
		b = appendU32(b, unix.NFTA_CHAIN_POLICY, uint32(h.Policy))
		b = appendString(b, unix.NFTA_CHAIN_TYPE, h.Type)
	}
	if len(c.UserData) > 0 {
		b = appendBytes(b, nftaChainUserdata, c.UserData)
	}
	return b
}

func (r *RuleSpec) append(b []byte) []byte {
	b = appendString(b, unix.NFTA_RULE_TABLE, r.Chain.Table.Name)
	b = appendString(b, unix.NFTA_RULE_CHAIN, r.Chain.Name)
	b, off := openNest(b, unix.NFTA_RULE_EXPRESSIONS)
	for _, e := range r.Exprs {
		b = append(b, e...)
	}
	closeNest(b, off)
	if len(r.UserData) > 0 {
		b = appendBytes(b, unix.NFTA_RULE_USERDATA, r.UserData)
	}
	return b
}

// Matches reports whether the dumped row is the chain that c declares.
func (c *ChainSpec) Matches(row Chain) bool {
	if c.Ref != row.Ref || (c.Hook == nil) != (row.Hook == nil) || string(c.UserData) != string(row.UserData) {
		return false
	}
	return c.Hook == nil || *c.Hook == *row.Hook
}

// Matches reports whether the dumped row is the rule that r declares, regardless of counters.
func (r *RuleSpec) Matches(row Rule) bool {
	if r.Chain != row.Chain || string(r.UserData) != string(row.UserData) {
		return false
	}
	var want []byte
	for _, e := range r.Exprs {
		want = append(want, e...)
	}
	return string(want) == string(NormalizeExprs(row.Exprs))
}

// NormalizeExprs returns a copy of raw with every counter reset to zero, its value when the rule was written.
func NormalizeExprs(raw []byte) []byte {
	out := append([]byte(nil), raw...)
	eachExpr(out, func(name string, data []byte) {
		if name != "counter" {
			return
		}
		netlink.EachAttr(data, func(_ uint16, d []byte) {
			if len(d) == 8 {
				binary.BigEndian.PutUint64(d, 0)
			}
		})
	})
	return out
}

// Counted returns the sum of the packet counters of a dumped rule.
func (r *Rule) Counted() (packets uint64) {
	eachExpr(r.Exprs, func(name string, data []byte) {
		netlink.EachAttr(data, func(typ uint16, d []byte) {
			if name == "counter" && typ == unix.NFTA_COUNTER_PACKETS {
				packets += be64(d)
			}
		})
	})
	return packets
}
