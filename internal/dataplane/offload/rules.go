package offload

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// statusDNAT is IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h.
const statusDNAT = 1 << 5

// rules are those of a threshold: Services by address, then NodePorts. What costs least stands first, and what a
// short connection never gets past before the look-up. A connection of IPVS is not `ct status dnat`: on the fast path it would stall.
func (s *side) rules(f model.Family, threshold string) []nft.RuleSpec {
	family := kernelFamily(f)
	packets := s.p.Threshold
	if threshold != "" {
		packets, _ = strconv.Atoi(threshold) // isThreshold
	}
	first := []nft.Expr{
		nft.Ct(unix.NFT_CT_STATUS, nft.Word(0)), nft.KeepBits(nft.Word(0), statusDNAT), nft.NotEqual(nft.Word(0), nft.HostU32(0)),
		nft.CtPackets(nft.Word(0)), nft.BigEndian(nft.Word(0), 8),
		nft.Cmp(unix.NFT_CMP_GT, nft.Word(0), binary.BigEndian.AppendUint64(nil, uint64(packets))),
	}
	address := nft.CtOriginalDest(family, nft.Word(0))
	port := func(at int) []nft.Expr {
		return []nft.Expr{nft.MetaL4Proto(nft.Word(at)), nft.CtOriginalDestPort(nft.Word(at + 1))}
	}
	then := []nft.Expr{nft.CountPackets(), nft.FlowOffload(flowtable)}
	list := [][]nft.Expr{
		append(append([]nft.Expr{address}, port(family.AddrLen()/4)...), nft.InSet(named(services, threshold), nft.Word(0))),
		append(append([]nft.Expr{address, nft.InSet(nodeIPs, nft.Word(0))}, port(0)...), nft.InSet(named(nodePorts, threshold), nft.Word(0))),
	}
	out := make([]nft.RuleSpec, len(list))
	for i, which := range list {
		exprs := append(append(append([]nft.Expr{}, first...), which...), then...)
		out[i] = nft.RuleSpec{Chain: tableRef(f).Chain(chainName), Exprs: exprs, UserData: nft.Comment(tag(threshold, exprs))}
	}
	return out
}

// tag is the comment of a rule. Kernels dump the same expression in different forms, so it tells which rule this is: by a sum
// of what we wrote.
func tag(threshold string, exprs []nft.Expr) string {
	h := fnv.New64a()
	for _, e := range exprs {
		_, _ = h.Write(e) // a hash never fails
	}
	return fmt.Sprintf("%s %x", nameOf(threshold), h.Sum64())
}

func nameOf(threshold string) string {
	if threshold == "" {
		return "default"
	}
	return threshold
}

// tags are the value of the rules of a threshold.
func (s *side) tags(f model.Family, threshold string) string {
	var all []string
	for _, r := range s.rules(f, threshold) {
		text, _ := commentOf(r.UserData)
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// thresholdOf reads whose rule a tag names.
func thresholdOf(text string) (threshold string, ok bool) {
	name, _, _ := strings.Cut(text, " ")
	if name == "default" {
		return "", true
	}
	return name, isThreshold(name)
}

// commentOf reads what nft.Comment wrote.
func commentOf(userData []byte) (string, bool) {
	if len(userData) < 3 || userData[0] != 0 || int(userData[1]) > len(userData)-2 {
		return "", false
	}
	return strings.TrimRight(string(userData[2:2+userData[1]]), "\x00"), true
}
