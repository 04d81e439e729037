package nft

import "golang.org/x/sys/unix"

// VerdictCode is the decision about a packet. Verdict with code 0 means "none" in an Element, so use Accept and Drop.
type VerdictCode int32

// Verdict codes: not netfilter's numbers, because its number of drop, 0, would be Go's zero value.
const (
	CodeDrop VerdictCode = iota + 1
	CodeAccept
	_ // continue: what a rule without a verdict does
	CodeReturn
	CodeJump
	CodeGoto
)

// Verdict is a verdict, with the target chain of a jump or goto.
type Verdict struct {
	Code  VerdictCode
	Chain string
}

// The verdicts.
func Accept() Verdict           { return Verdict{Code: CodeAccept} }
func Drop() Verdict             { return Verdict{Code: CodeDrop} }
func Return() Verdict           { return Verdict{Code: CodeReturn} }
func Jump(chain string) Verdict { return Verdict{CodeJump, chain} }
func Goto(chain string) Verdict { return Verdict{CodeGoto, chain} }

// wire returns the number of linux/netfilter.h or nf_tables.h.
func (c VerdictCode) wire() int32 {
	return [...]int32{0, 0, 1, -1, -5, -3, -4}[c]
}

func verdictOf(wire int32) VerdictCode {
	for c := CodeDrop; c <= CodeGoto; c++ {
		if c.wire() == wire {
			return c
		}
	}
	return 0
}

func appendVerdict(b []byte, typ uint16, v Verdict) []byte {
	b, data := openNest(b, typ)
	b, verdict := openNest(b, unix.NFTA_DATA_VERDICT)
	b = appendU32(b, unix.NFTA_VERDICT_CODE, uint32(v.Code.wire()))
	if v.Chain != "" {
		b = appendString(b, unix.NFTA_VERDICT_CHAIN, v.Chain)
	}
	closeNest(b, verdict)
	closeNest(b, data)
	return b
}
