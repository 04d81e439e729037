package iptables

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// Rules are written as iptables-save prints them, letter by letter, so that
// actual and desired rules are compared as text. TestRoundTrip verifies every
// phrase here with both backends.

func itoa(n int) string { return strconv.Itoa(n) }

// dest is "-d 10.96.0.1/32".
func dest(a netip.Addr) string { return "-d " + netip.PrefixFrom(a, a.BitLen()).String() }

func comment(s string) string { return ` -m comment --comment "` + s + `"` }

// toPort is "-p tcp -m tcp --dport 80", with what stands between.
func toPort(p model.Protocol, between string, port uint16) string {
	return toPorts(p, between, port, 0)
}

// toPorts is toPort for a range, if last is not 0.
func toPorts(p model.Protocol, between string, port, last uint16) string {
	w := word(p)
	s := "-p " + w + between + " -m " + w + " --dport " + itoa(int(port))
	if last > port {
		s += ":" + itoa(int(last))
	}
	return s
}

const (
	isNew     = "-m conntrack --ctstate NEW"
	toLocal   = "-m addrtype --dst-type LOCAL"
	fromLocal = "-m addrtype --src-type LOCAL"
)

// fromPods are the tests of which one holds if the packet comes from a pod; none
// if nothing counts as one. not is the single test for the opposite, "" if it
// takes a chain.
func fromPods(d *model.LocalDetector, f model.Family) (tests []string, not string) {
	switch d.Mode {
	case model.DetectCIDR:
		for _, c := range d.CIDRs {
			if model.FamilyOf(c.Addr()) == f {
				tests = append(tests, "-s "+c.String())
			}
		}
	case model.DetectBridgeInterface:
		if d.Interface != "" {
			tests = append(tests, "-i "+d.Interface)
		}
	case model.DetectInterfaceNamePrefix:
		if d.Interface != "" {
			tests = append(tests, "-i "+d.Interface+"+")
		}
	}
	if len(tests) == 1 {
		not = "! " + tests[0]
	}
	return tests, not
}

// outsideMarks is the line that asks for masquerade unless the packet comes from
// a pod; "" if nothing counts as a pod.
func outsideMarks(v *model.NodeView, f model.Family) string {
	tests, not := fromPods(&v.Local, f)
	switch {
	case v.MasqueradeAll:
		return "-j " + markMasq
	case len(tests) == 0:
		return ""
	case not != "":
		return not + " -j " + markMasq
	}
	return "-j " + markOutside
}

// picker writes the rules that choose an endpoint.
type picker struct {
	name     string // of the Service port: part of what clients are remembered under
	proto    model.Protocol
	family   model.Family
	affinity time.Duration
	hash     bool // by client address, not at random
	cluster  bool // xt_cluster is available
}

// maxCluster is how many slots a hash can choose among: the most that xt_cluster counts.
const maxCluster = 32

// rules draws among the backends, each with its weight's share: the i-th rule
// holds with the weight's share of what is left, the last one always.
func (p *picker) rules(list []model.Backend, out []string) []string {
	total := 0
	for i := range list {
		total += max(int(list[i].Weight), 1)
	}
	affinity := p.affinity
	byHash := p.hash && p.cluster && total <= maxCluster && total > 1
	if p.hash && !byHash && affinity == 0 {
		affinity = 3 * time.Hour // too many to hash: remember each client instead
	}
	if affinity > 0 {
		for i := range list {
			out = append(out, p.recall(&list[i], affinity))
		}
	}
	if byHash {
		return p.byHash(list, total, out)
	}
	left := total
	for i := range list {
		b, w := &list[i], max(int(list[i].Weight), 1)
		s := "-p " + word(p.proto)
		if left > w { // not the last one
			s += " -m statistic --mode random --probability " + share(w, left)
		}
		if affinity > 0 {
			s += p.remember(b)
		}
		out = append(out, s+p.dnat(b))
		left -= w
	}
	return out
}

// byHash chooses by the client's address, with one rule for each part of an endpoint's
// weight: the rule with n slots left takes the clients whose hash is in the first of n
// equal parts. The hash of each rule is another one, seeded by the endpoint alone, so that
// all nodes agree and an endpoint that comes or goes moves no more than twice its share of
// the clients: from n to n+1 slots a rule keeps all of its clients but one of n+1.
func (p *picker) byHash(list []model.Backend, slots int, out []string) []string {
	for i := range list {
		b := &list[i]
		for part := range max(int(b.Weight), 1) {
			s := "-p " + word(p.proto)
			if slots > 1 {
				s += fmt.Sprintf(" -m cluster --cluster-local-nodemask 0x00000001 --cluster-total-nodes %d --cluster-hash-seed 0x%08x", slots, hashSeed(b, part))
			}
			if p.affinity > 0 {
				s += p.remember(b)
			}
			out = append(out, s+p.dnat(b))
			slots--
		}
	}
	return out
}

// hashSeed depends on the endpoint alone, and on which part of its weight it is for.
func hashSeed(b *model.Backend, part int) uint32 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", b.AddrPort(), part))
	return binary.BigEndian.Uint32(sum[:])
}

// share writes w/of as xt_statistic keeps it, in parts of 2^31.
func share(w, of int) string {
	const one = 1 << 31
	n := (uint64(w)*one + uint64(of)/2) / uint64(of)
	return strconv.FormatFloat(float64(n)/one, 'f', 11, 64)
}

func (p *picker) dnat(b *model.Backend) string {
	if b.Port == 0 { // of a range: the port that the client asked for
		return " -j DNAT --to-destination " + b.Addr.String()
	}
	return " -j DNAT --to-destination " + b.AddrPort().String()
}

// list returns the name of the xt_recent list of one endpoint: the clients that chose it, and when.
func (p *picker) list(b *model.Backend) string {
	return "KUBE-SEP-" + shortHash(p.name+word(p.proto)+b.AddrPort().String())
}

// recall goes to the endpoint that this client chose before, and renews the time.
func (p *picker) recall(b *model.Backend, timeout time.Duration) string {
	name, mask := p.list(b), wholeMask(p.family)
	return fmt.Sprintf("-p %s -m recent --rcheck --seconds %d --reap --name %s --mask %s --rsource", word(p.proto),
		max(int(timeout/time.Second), 1), name, mask) + p.remember(b) + p.dnat(b)
}

func (p *picker) remember(b *model.Backend) string {
	return " -m recent --set --name " + p.list(b) + " --mask " + wholeMask(p.family) + " --rsource"
}

func wholeMask(f model.Family) string {
	if f == model.IPv6 {
		return strings.TrimSuffix(strings.Repeat("ffff:", 8), ":")
	}
	return "255.255.255.255"
}

// reject answers a client that it may stop trying. A reset, because a TCP client
// on this host would wait a second for the ICMP error to count.
func reject(p model.Protocol, f model.Family) string {
	switch {
	case p == model.TCP:
		return " -j REJECT --reject-with tcp-reset"
	case f == model.IPv6:
		return " -j REJECT --reject-with icmp6-port-unreachable"
	}
	return " -j REJECT --reject-with icmp-port-unreachable"
}

const masquerade = "-j MASQUERADE --random-fully"
