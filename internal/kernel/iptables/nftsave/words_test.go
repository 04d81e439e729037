package nftsave

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
)

// readable are rules that the Reader prints as the program does. What stands between braces
// is an address: the first is of IPv4, the second of IPv6.
var readable = []string{
	"",
	"-j ACCEPT",
	"-j RETURN",
	"-j TO",
	"-g TO",
	"-s {192.0.2.1/32|2001:db8::1/128} -j TO",
	"! -s {192.0.2.1/32|2001:db8::1/128} -j TO",
	"-d {192.0.2.128/25|2001:db8:0:1::/65} -j TO",
	"-d {192.0.0.0/8|2000::/8} -j TO",
	"-d {192.0.0.0/9|2000::/9} -j TO",
	"! -d {192.0.2.0/24|2001:db8::/64} -j TO",
	"-s {10.0.0.0/16|fd00::/48} -d {192.0.2.0/28|2001:db8::/124} -j TO",
	"-s {127.0.0.0/8|::1/128} -j TO",
	"-i eth0 -j TO",
	"! -i eth0 -o eth1 -j TO",
	"-i veth+ ! -o cali+ -j TO",
	"-i fifteen-letters -j TO",
	"-p tcp -j TO",
	"! -p udp -j TO",
	"-p sctp -j TO",
	"-p tcp -m tcp --dport 80 -j TO",
	"-p tcp -m tcp --sport 80 -j TO",
	"-p tcp -m tcp --sport 80 --dport 81 -j TO",
	"-p tcp -m tcp --sport 80 --dport 81:90 -j TO",
	"-p tcp -m tcp --sport 80:85 ! --dport 81:90 -j TO",
	"-p tcp -m tcp ! --sport 80 -j TO",
	"-p tcp -m tcp ! --dport 80 -j TO",
	"-p tcp -m tcp --dport 0:255 -j TO",
	"-p tcp -m tcp --dport 1024:65535 -j TO",
	"-p tcp -m tcp ! --dport 0:255 -j TO",
	"-p tcp -m tcp ! --dport 1024:65535 -j TO",
	"-p udp -m udp --sport 53 -j TO",
	"-p udp -m udp --dport 53 -j TO",
	"-p udp -m udp --dport 0:255 -j TO",
	"-p udp -m udp ! --sport 53 ! --dport 53 -j TO",
	"-p udp -m udp ! --dport 53:54 -j TO",
	"-p sctp -m sctp --dport 80:90 -j TO",
	`-p tcp -m comment --comment "before it" -m tcp --dport 80 -m comment --comment "behind it" -j TO`,
	"-p tcp -m tcp --dport 80 -m mark --mark 0x1 -m comment --comment between -m statistic --mode random --probability 0.50000000000 -j TO",
	"-m mark --mark 0x4000 -j TO",
	"-m mark --mark 0x0 -j TO",
	"-m mark ! --mark 0x4000/0x4000 -j TO",
	"-m mark --mark 0x12345678/0xf0f0f0f0 -j TO",
	"-m mark --mark 0x1 -m mark ! --mark 0x2 -j TO",
	"-m addrtype --dst-type LOCAL -j TO",
	"-m conntrack --ctstate NEW -j TO",
	"-j MARK --set-xmark 0x1/0x1",
	"-p tcp -j DNAT --to-destination {192.0.2.1:80|[2001:db8::1]:80}",
	"-j DNAT --to-destination {192.0.2.1|2001:db8::1}",
}

// strange are rules that the Reader leaves to the program. For some the program prints other
// text than its input.
var strange = []string{
	"-m limit --limit 1/sec -j TO",
	"-m multiport -p tcp --dports 80,81 -j TO",
	"-p tcp -m tcp --tcp-flags SYN,ACK SYN -j TO",
	"-m conntrack --ctstate NEW -m string --string x --algo bm -j TO",
	"-p 4 -j TO",
	"-m mac --mac-source 00:11:22:33:44:55 -j TO",
	"-s {192.0.2.0/255.0.255.0|2001:db8::/ffff::ffff} -j TO",
	"-j LOG",
	"-j NFLOG --nflog-group 1",
}

func inFamily(rule string, f xt.Family) string {
	for {
		before, rest, more := strings.Cut(rule, "{")
		if !more {
			return rule
		}
		both, after, _ := strings.Cut(rest, "}")
		v4, v6, _ := strings.Cut(both, "|")
		if f == xt.IPv6 {
			v4 = v6
		}
		rule = before + v4 + after
	}
}

func TestReadsWhatTheProgramPrints(t *testing.T) {
	h := newHost(t, Config{})
	for _, f := range families {
		lines := []string{":TO - [0:0]"}
		for i, rule := range readable {
			lines = append(lines, fmt.Sprintf(":ONE-%d - [0:0]", i), fmt.Sprintf("-A ONE-%d %s", i, inFamily(rule, f)))
		}
		lines = append(lines, ":ALL - [0:0]")
		for _, rule := range readable {
			lines = append(lines, "-A ALL "+inFamily(rule, f))
		}
		h.restore(f, "nat", lines...)
		h.same(f, "nat")
		got, err := h.read(f, "nat", anyChain)
		if rules := len(got) - 2 - len(readable); err != nil || rules != 2*len(readable) {
			t.Errorf("%d rules were read, %v", rules, err)
		}
	}
}

func TestLeavesToTheProgramWhatIsStrange(t *testing.T) {
	h := newHost(t, Config{})
	for _, f := range families {
		for i, rule := range strange {
			if out, err := h.run("*filter\n:TO - [0:0]\n:IT - [0:0]\n-A IT "+inFamily(rule, f)+"\nCOMMIT\n", program(f, "-restore"), "--noflush"); err != nil {
				t.Logf("%d, %s: not written here: %s", i, rule, out)
				continue
			}
			h.unknown(f, "filter", anyChain)
			h.restore(f, "filter", ":IT - [0:0]")
			h.same(f, "filter")
		}
	}
}

// TestLeavesToTheProgramWhatNFTWrote: rules that no iptables writes, though each of their parts is known.
func TestLeavesToTheProgramWhatNFTWrote(t *testing.T) {
	h := newHost(t, Config{})
	for _, f := range families {
		for _, rule := range []string{`counter jump TO comment "of nft"`, "meta l4proto & 0x0f == 6 counter jump TO"} {
			h.restore(f, "filter", ":TO - [0:0]", ":IT - [0:0]", "-A IT -j TO")
			h.same(f, "filter")
			args := append([]string{"add", "rule", map[xt.Family]string{xt.IPv4: "ip", xt.IPv6: "ip6"}[f], "filter", "IT"}, strings.Fields(rule)...)
			if out, err := h.run("", "nft", args...); err != nil {
				t.Fatalf("%s: %v: %s", rule, err, out)
			}
			h.unknown(f, "filter", anyChain)
		}
	}
}

// TestBuiltInChains: of foreign rules there only those are printed that jump to an owned chain.
func TestBuiltInChains(t *testing.T) {
	ours := func(chain string) bool { return strings.HasPrefix(chain, "KUBE-") }
	h := newHost(t, Config{})
	for _, f := range families {
		h.restore(f, "filter", ":KUBE-A - [0:0]", ":OTHER - [0:0]", "-A OTHER -m limit --limit 1/sec -j KUBE-A", "-A KUBE-A -j DROP",
			"-A FORWARD -m limit --limit 1/sec -j OTHER", "-A FORWARD -j OTHER", "-A FORWARD -i eth0 -j KUBE-A", "-A INPUT -j ACCEPT")
		if out, err := h.run("", "nft", "add", "rule", map[xt.Family]string{xt.IPv4: "ip", xt.IPv6: "ip6"}[f], "filter", "INPUT", "ct", "state", "new", "counter", "comment", `"nft's own"`); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		got, err := h.read(f, "filter", ours)
		if all := strings.Join(got, "\n"); err != nil || all != "-A FORWARD -i eth0 -j KUBE-A\n-A KUBE-A -j DROP\n:KUBE-A - [0:0]" {
			t.Errorf("%v, read\n%s", err, all)
		}
		h.restore(f, "filter", "-A OUTPUT -m limit --limit 1/sec -g KUBE-A")
		h.unknown(f, "filter", ours)
	}
}

func TestNothingToRead(t *testing.T) {
	h := newHost(t, Config{})
	for _, f := range families {
		for _, table := range []string{"nat", "filter"} {
			if got, err := h.read(f, table, anyChain); len(got) > 0 || err != nil {
				t.Errorf("%q, %v of a table that is not there", got, err)
			}
		}
		h.restore(f, "nat", ":EMPTY - [0:0]")
		if got, err := h.read(f, "nat", anyChain); len(got) != 1 || got[0] != ":EMPTY - [0:0]" || err != nil {
			t.Errorf("%q, %v of an empty chain", got, err)
		}
	}
}
