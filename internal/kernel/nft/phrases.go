package nft

import "golang.org/x/sys/unix"

// Phrases are parts of rules that every data plane over nftables says in the same way. Each uses the register at word 0.

// NewConnection matches the first packets of a connection.
func NewConnection() []Expr {
	const ctStateNew = 8
	return []Expr{Ct(unix.NFT_CT_STATE, Word(0)), KeepBits(Word(0), ctStateNew), NotEqual(Word(0), HostU32(0))}
}

// FromThisNode matches packets that carry one of this node's own addresses.
func FromThisNode() []Expr {
	return []Expr{FibSourceType(Word(0)), Equal(Word(0), HostU32(unix.RTN_LOCAL))}
}

// Mark sets bits of the packet's mark; other agents' bits stay as they are.
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
