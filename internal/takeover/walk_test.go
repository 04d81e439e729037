package takeover

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// otherTables are tables of every family. The first ones are not reported: they do not filter IP, are dormant, or are the agent's.
const otherTables = `
table arp first { chain in { type filter hook input priority 0; policy drop; }; }
table bridge second { chain in { type filter hook input priority 0; policy drop; }; }
table ip sleeping { flags dormant; chain in { type filter hook input priority 0; policy drop; }; }
table inet early { chain in { type filter hook ingress device lo priority 0; policy drop; }; }
table ip fairlead { chain in { type filter hook input priority 0; policy drop; }; }
table ip a {
	chain limits {
		ip daddr 10.0.0.1 drop
		ip saddr 10.0.0.2 drop
		tcp dport 81 drop
		ip daddr 10.0.0.3 ip saddr 10.0.0.4 tcp dport 82 drop
	}
	chain unused { drop; }
	chain after { tcp dport 89 drop; }
	chain forward {
		type filter hook forward priority -5; policy accept;
		ip daddr 10.1.0.0/16 jump limits
		ip saddr 10.2.0.0/16 tcp dport 83 goto limits
		ip daddr 10.3.0.1 accept
		tcp dport 84 jump after
	}
	chain output { type route hook output priority 7; policy drop; }
}
table ip6 b {
	chain input { type filter hook input priority 0; policy drop; ip6 daddr fd00::1 ip6 saddr fd00::2 drop; }
	chain post { type nat hook postrouting priority 100; policy accept; }
}
table inet c { chain pre { type nat hook prerouting priority 0; policy accept; tcp dport 85 redirect to :1; }; }
`

// byTheEffects lists rules as "where: effect from source to destination port".
func byTheEffects(list []Stranger) (out []string) {
	for _, s := range list {
		line := s.Where + ": " + s.Effect.Ends
		if s.Effect.Saddr != nil {
			line += " from " + s.Effect.Saddr.String()
		}
		if s.Effect.Daddr != nil {
			line += " to " + s.Effect.Daddr.String()
		}
		if s.Effect.Dport != 0 {
			line += fmt.Sprint(" port ", s.Effect.Dport)
		}
		out = append(out, line)
	}
	return out
}

const forwardOfA = "table ip a, chain forward (filter, forward, priority -5): "

// TestStrangersOfEveryFamily: rules and policies of the three families of IP are reported with the limits of the rules that lead to them.
func TestStrangersOfEveryFamily(t *testing.T) {
	b := newBed(t)
	b.sh("nft -f - <<'END'\n" + otherTables + "END")
	b.k.Planes.OurTable = func(t *nft.Table) bool { return t.Ref.Name == "fairlead" }
	want := []string{
		forwardOfA + "drop to 10.0.0.1/32",
		forwardOfA + "drop from 10.0.0.2/32 to 10.1.0.0/16",
		forwardOfA + "drop to 10.1.0.0/16 port 81",
		forwardOfA + "drop from 10.0.0.4/32 to 10.0.0.3/32 port 82",
		forwardOfA + "drop from 10.2.0.0/16 to 10.0.0.1/32 port 83",
		forwardOfA + "drop from 10.0.0.2/32 port 83",
		forwardOfA + "drop from 10.2.0.0/16 port 81",
		forwardOfA + "drop from 10.0.0.4/32 to 10.0.0.3/32 port 82",
		forwardOfA + "drop port 89",
		"table ip a, chain output (route, output, priority 7), its policy: drop",
		"table ip6 b, chain input (filter, input, priority 0): drop from fd00::2/128 to fd00::1/128",
		"table ip6 b, chain input (filter, input, priority 0), its policy: drop",
		"table inet c, chain pre (nat, prerouting, priority 0): redirect port 85",
	}
	list, err := b.k.Strangers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, byTheEffects(list)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for _, method := range []string{"Chains", "Rules"} {
		tables := 0
		broken := b.k
		broken.NFT = &nft.Faulty{Kernel: b.k.NFT, OnRead: func(m string) error {
			if m != method {
				return nil
			}
			if tables++; tables == 3 { // the third of those that are read, behind the table a
				return errors.New("out of memory")
			}
			return nil
		}}
		list, err = broken.Strangers(t.Context())
		if d := cmp.Diff(want[:10], byTheEffects(list)); d != "" || err == nil || !strings.Contains(err.Error(), "out of memory") {
			t.Errorf("if %s fails: %v, -want +got:\n%s", method, err, d)
		}
	}
	broken := b.k
	broken.NFT = &nft.Faulty{Kernel: b.k.NFT, OnRead: func(string) error { return errors.New("out of memory") }}
	b.sh("iptables-legacy -A INPUT -j DROP")
	if list, err = broken.Strangers(t.Context()); err == nil || len(list) != 1 {
		t.Errorf("if nftables cannot be read: %v, %v", byTheEffects(list), err)
	}
	broken.NFT = nil
	if list, err = broken.Strangers(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("without nf_tables: %v, %v", byTheEffects(list), err)
	}
}

// saved is x_tables as the texts of iptables-legacy-save, by table of a family.
type saved struct {
	kernel.Kernel
	texts  map[string]string
	failed string
}

func (saved) Backend() kernel.Backend { return kernel.Legacy }

func (s saved) Save(_ context.Context, f kernel.Family, table string, emit func([]byte) error) error {
	key := fmt.Sprintf("%d %s", f, table)
	if key == s.failed {
		return errors.New("program not installed")
	}
	for line := range strings.Lines(s.texts[key]) {
		if err := emit([]byte(strings.TrimSuffix(line, "\n"))); err != nil {
			return err
		}
	}
	return nil
}

// TestStrangersOfLegacyTables: every table of both families is read, and a failure keeps what was read before it.
func TestStrangersOfLegacyTables(t *testing.T) {
	texts := map[string]string{
		fmt.Sprintf("%d raw", kernel.IPv4):    "# by hand\n:PREROUTING ACCEPT [0:0]\n:OUTPUT DROP [0:0]\n-A PREROUTING -d 10.0.0.1/32 -j DROP\n-A PREROUTING -s 10.0.0.2/32 -j ACCEPT\n-A PREROUTING -j KUBE-OWN\nCOMMIT",
		fmt.Sprintf("%d mangle", kernel.IPv4): ":FORWARD ACCEPT [0:0]\n-A FORWARD -s 10.0.0.3/32 -p tcp -m tcp --dport 80 -j TPROXY --on-port 1",
		fmt.Sprintf("%d nat", kernel.IPv4): ":PREROUTING ACCEPT [0:0]\n:POSTROUTING\n:OTHER - [0:0]\n:KUBE-OWN - [0:0]\n-A PREROUTING -g OTHER\n" +
			"-A PREROUTING -m comment --comment \"a \\\" -j DROP\" -j RETURN\n-A PREROUTING -j KUBE-OWN\n-A PREROUTING -j ACCEPT\n" +
			"-A OTHER ! -s 10.0.0.4/32 ! -d 10.0.0.5/32 -p tcp -m tcp ! --dport 80 -j REDIRECT\n-A OTHER -s bad -d bad --dport 65536 -j DNAT\n-A KUBE-OWN -j DROP",
		fmt.Sprintf("%d filter", kernel.IPv4): ":INPUT DROP [0:0]\n-A INPUT",
		fmt.Sprintf("%d filter", kernel.IPv6): ":FORWARD ACCEPT [0:0]\n-A FORWARD -d fd00::1/128 --dport 65535 -j REJECT\n-A FORWARD -m comment --comment \"x\\\\\" -j DROP\n-A FORWARD -m comment --comment \"cut \\",
	}
	want := []string{
		"iptables-legacy, table raw of IPv4, chain PREROUTING: drop to 10.0.0.1/32",
		"iptables-legacy, table raw of IPv4, chain OUTPUT, its policy: drop",
		"iptables-legacy, table mangle of IPv4, chain FORWARD: tproxy from 10.0.0.3/32 port 80",
		"iptables-legacy, table nat of IPv4, chain PREROUTING: redirect",
		"iptables-legacy, table nat of IPv4, chain PREROUTING: dnat",
		"iptables-legacy, table nat of IPv4, chain PREROUTING: exempt from Fairlead's rules",
		"iptables-legacy, table filter of IPv4, chain INPUT, its policy: drop",
		"iptables-legacy, table filter of IPv6, chain FORWARD: reject to fd00::1/128 port 65535",
		"iptables-legacy, table filter of IPv6, chain FORWARD: drop",
	}
	k := Kernels{Planes: Planes{OurChain: func(at Place, table, chain string) bool {
		return at == IPTablesLegacy && table == "nat" && chain == "KUBE-OWN"
	}}}
	for failed, n := range map[string]int{"": 9, fmt.Sprintf("%d mangle", kernel.IPv4): 2, fmt.Sprintf("%d raw", kernel.IPv6): 7} {
		// What the backend nft holds is read through nftables, not by its programs.
		k.IPTables = []kernel.Kernel{&kernel.Fake{}, saved{texts: texts, failed: failed}}
		list, err := k.Strangers(t.Context())
		if d := cmp.Diff(want[:n], byTheEffects(list)); d != "" || (err != nil) != (failed != "") {
			t.Errorf("failed: %q: error %v, -want +got:\n%s", failed, err, d)
		}
	}
}

// TestStrangersAreBounded: jumps are followed to a bounded depth, and the number of reported rules is bounded over all places.
func TestStrangersAreBounded(t *testing.T) {
	deep := ":INPUT ACCEPT [0:0]\n-A INPUT -j C0\n"
	for i := range maxDepth + 2 {
		deep += fmt.Sprintf("-A C%d -p tcp -m tcp --dport %d -j DROP\n-A C%d -j C%d\n", i, i+1, i, i+1)
	}
	many := ":INPUT ACCEPT [0:0]\n-A INPUT -j MANY\n" + strings.Repeat("-A MANY -j DROP\n", maxStrangers+3)
	for text, want := range map[string]int{deep: maxDepth, many: maxStrangers} {
		k := Kernels{IPTables: []kernel.Kernel{saved{texts: map[string]string{fmt.Sprintf("%d filter", kernel.IPv4): text, fmt.Sprintf("%d filter", kernel.IPv6): text}}}}
		list, err := k.Strangers(t.Context())
		if err != nil || len(list) != min(2*want, maxStrangers) {
			t.Errorf("%d rules of %d, error %v", len(list), want, err)
		}
	}
}

// TestWalkFollowsEveryJump: a jump to the agent's own chain does not hide the next jump of the same rule; only a base chain of nat is passed by, and
// only ahead of the last jump.
func TestWalkFollowsEveryJump(t *testing.T) {
	p := netip.MustParsePrefix("10.0.0.0/8")
	own := nft.Effect{Jumps: []string{"own", "other"}}
	for _, c := range []struct {
		nat  bool
		want string
	}{{true, "drop,exempt from Fairlead's rules,exempt from Fairlead's rules,exempt from Fairlead's rules,drop"}, {false, "drop,drop"}} {
		w := walk{nat: c.nat, at: NFTables, table: "t", ours: func(at Place, table, chain string) bool { return at == NFTables && table == "t" && chain == "own" },
			rules: map[string][]nft.Effect{"base": {own, {Stops: "return"}, {Stops: "accept", Daddr: &p}, own, {Stops: "accept"}}, "other": {{Ends: "drop"}, {Stops: "accept"}, {Stops: "return"}}}}
		w.begin("base", false)
		var got []string
		for _, s := range w.found {
			got = append(got, s.Effect.Ends)
		}
		if text := strings.Join(got, ","); text != c.want {
			t.Errorf("nat %t: %s, want %s", c.nat, text, c.want)
		}
	}
	if w := (walk{}); slices.ContainsFunc([]string{"own"}, w.isOurs) {
		t.Error("without a mode that runs a chain is taken for the agent's")
	}
}
