package nft

// User data tells nft how to print what the kernel knows only as bytes. Its TLVs have one-byte types and lengths; numbers are
// in host order. Numbers below are nft 1.0.6's own enums (expression and protocol identifiers); the tests compare every blob
// with what nft itself writes.

// UserData is the user data of the set as nft 1.0.6 writes it.
func (s *SetSpec) UserData() []byte { return nil }

// Comment is the user data that makes nft print an element (or rule, chain, table, set) with `comment "text"`. nft allows
// 128 bytes; longer text is cut.
func Comment(text string) []byte { return AppendComment(nil, text) }

// AppendComment appends Comment(text) to b.
func AppendComment(b []byte, text string) []byte {
	text = text[:min(len(text), 127)]
	b = append(b, 0, byte(len(text)+1))
	b = append(b, text...)
	return append(b, 0)
}
