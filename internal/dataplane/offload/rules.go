package offload

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// IPS_DST_NAT and IPS_OFFLOAD of linux/netfilter/nf_conntrack_common.h.
const (
	statusDNAT    = 1 << 5
	statusOffload = 1 << 14
)

// rules returns the rules of a threshold, or of the hand-over. The chain at the hook has only one test, so that short connections
// cost no more than that. A connection of IPVS does not match `ct status dnat`: on the fast path it would stall.
func (s *side) rules(f model.Family, id string) []nft.RuleSpec {
	if id == handOver {
		return handingOver(f)
	}
	family := kernelFamily(f)
	packets := s.p.Threshold
	if id != "" {
		packets, _ = strconv.Atoi(id) // isThreshold
	}
	address := nft.CtOriginalDest(family, nft.Word(0))
	port := func(at int) []nft.Expr {
		return []nft.Expr{nft.MetaL4Proto(nft.Word(at)), nft.CtOriginalDestPort(nft.Word(at + 1))}
	}
	then := func(chain string) nft.Expr { return nft.SetVerdict(nft.Jump(chain)) }
	chain := named(take, id)
	return []nft.RuleSpec{
		rule(f, chainName, id,
			nft.CtPackets(nft.Word(0)), nft.KeepBits(nft.Word(lowWord()), atLeast(packets+1)), nft.NotEqual(nft.Word(lowWord()), nft.HostU32(0)),
			nft.CtPackets(nft.Word(0)), nft.BigEndian(nft.Word(0), 8), nft.Cmp(unix.NFT_CMP_GT, nft.Word(0), binary.BigEndian.AppendUint64(nil, uint64(packets))),
			nft.Ct(unix.NFT_CT_STATUS, nft.Word(0)), nft.KeepBits(nft.Word(0), statusDNAT), nft.NotEqual(nft.Word(0), nft.HostU32(0)), then(chain)),
		rule(f, chain, id, append(append([]nft.Expr{address}, port(family.AddrLen()/4)...), nft.InSet(named(services, id), nft.Word(0)), then(handOver))...),
		rule(f, chain, id, append(append([]nft.Expr{address, nft.InSet(nodeIPs, nft.Word(0))}, port(0)...), nft.InSet(named(nodePorts, id), nft.Word(0)), then(handOver))...),
	}
}

// atLeast returns a mask that matches every number from the highest bit of n on. It is used because the kernel has an optimized
// comparison for one word but not for a number of 64 bits. n is at least 1.
func atLeast(n int) uint32 { return ^(uint32(1)<<(bits.Len32(uint32(n))-1) - 1) }

// lowWord returns the index of the low word of a 64-bit number, in the byte order of this machine.
func lowWord() int {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return 0
	}
	return 1
}

// handingOver returns the rules of the hand-over. They skip connections whose client, Service or endpoint (the source of the replies)
// is excluded.
func handingOver(f model.Family) []nft.RuleSpec {
	family := kernelFamily(f)
	var out []nft.RuleSpec
	for _, load := range []nft.Expr{nft.CtOriginalSource(family, nft.Word(0)), nft.CtReplySource(family, nft.Word(0)), nft.CtOriginalDest(family, nft.Word(0))} {
		out = append(out, rule(f, handOver, handOver, load, nft.InSet(excluded, nft.Word(0)), nft.CountPackets(), nft.SetVerdict(nft.Return())))
	}
	return append(out,
		rule(f, handOver, handOver, nft.FlowOffload(flowtable), nft.CountPackets()), // the rule ends before the counter if the kernel does not take the connection
		rule(f, handOver, handOver, nft.Ct(unix.NFT_CT_STATUS, nft.Word(0)), nft.KeepBits(nft.Word(0), statusOffload),
			nft.Equal(nft.Word(0), nft.HostU32(0)), nft.CountPackets()))
}

func rule(f model.Family, chain, id string, exprs ...nft.Expr) nft.RuleSpec {
	return nft.RuleSpec{Chain: tableRef(f).Chain(chain), Exprs: exprs, UserData: nft.Comment(tag(id, exprs))}
}

// tag returns the comment of a rule: its name and a hash of the expressions as written. Kernels dump the same expression in
// different forms, so only the hash identifies the rule.
func tag(id string, exprs []nft.Expr) string {
	h := fnv.New64a()
	for _, e := range exprs {
		_, _ = h.Write(e) // a hash never fails
	}
	return fmt.Sprintf("%s %x", nameOf(id), h.Sum64())
}

func nameOf(id string) string {
	if id == "" {
		return "default"
	}
	return id
}

// tags returns the value of kindRule for an id.
func (s *side) tags(f model.Family, id string) string {
	var all []string
	for _, r := range s.rules(f, id) {
		text, _ := commentOf(r.UserData)
		all = append(all, placed(r.Chain, text))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// placed returns the text of a rule with the name of its chain.
func placed(chain nft.ChainRef, text string) string { return chain.Name + ": " + text }

// idOf returns the id that a tag contains.
func idOf(text string) (id string, ok bool) {
	name, _, _ := strings.Cut(text, " ")
	switch name {
	case "default":
		return "", true
	case handOver:
		return handOver, true
	}
	return name, isThreshold(name)
}

// commentOf decodes user data that nft.Comment encoded.
func commentOf(userData []byte) (string, bool) {
	if len(userData) < 3 || userData[0] != 0 || int(userData[1]) > len(userData)-2 {
		return "", false
	}
	return strings.TrimRight(string(userData[2:2+userData[1]]), "\x00"), true
}
