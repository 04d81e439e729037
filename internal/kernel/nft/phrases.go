package nft

import "golang.org/x/sys/unix"

// Phrases are parts of rules that all data planes over nftables share. Each uses the register at word 0, and the words after
// it if it loads more than one value.

// Join concatenates lists of expressions.
func Join(parts ...[]Expr) []Expr {
	var out []Expr
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// Does ends a rule with a verdict.
func Does(v Verdict) []Expr { return []Expr{SetVerdict(v)} }

// In matches a key at word 0 that is in a set.
func In(set string) Expr { return InSet(set, Word(0)) }

// VMap applies the verdict that a map holds for the key at word 0.
func VMap(set string) Expr { return LookupVerdict(set, Word(0)) }

// VIP loads `daddr . l4proto . dport` and returns the next free word.
func VIP(f Family) (load []Expr, next int) {
	n := f.AddrLen() / 4
	return []Expr{DestAddr(f, Word(0)), MetaL4Proto(Word(n)), DestPort(Word(n + 1))}, n + 2
}

// L4Port loads `l4proto . dport` and returns the next free word.
func L4Port() (load []Expr, next int) {
	return []Expr{MetaL4Proto(Word(0)), DestPort(Word(1))}, 2
}

// To matches packets to an address in a set.
func To(f Family, set string) []Expr { return []Expr{DestAddr(f, Word(0)), In(set)} }

// From matches packets from an address in a set.
func From(f Family, set string) []Expr { return []Expr{SourceAddr(f, Word(0)), In(set)} }

// NewConnection matches the first packets of a connection.
func NewConnection() []Expr {
	const ctStateNew = 8
	return []Expr{Ct(unix.NFT_CT_STATE, Word(0)), KeepBits(Word(0), ctStateNew), NotEqual(Word(0), HostU32(0))}
}

// FromThisNode matches packets that carry one of this node's own addresses.
func FromThisNode() []Expr {
	return []Expr{FibSourceType(Word(0)), Equal(Word(0), HostU32(unix.RTN_LOCAL))}
}

// Mark sets bits of the packet's mark; the bits of other programs are unchanged.
func Mark(bits uint32) []Expr {
	return []Expr{MetaMark(Word(0)), SetBits(Word(0), bits), MetaSet(unix.NFT_META_MARK, Word(0))}
}

// Unmark matches packets with one of the bits in their mark, and clears all of them.
func Unmark(bits uint32) []Expr {
	return []Expr{
		MetaMark(Word(0)), KeepBits(Word(0), bits), NotEqual(Word(0), HostU32(0)),
		MetaMark(Word(0)), KeepBits(Word(0), ^bits), MetaSet(unix.NFT_META_MARK, Word(0)),
	}
}
