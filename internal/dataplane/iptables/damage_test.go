package iptables

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
)

// A rule in the place of another of the same size moves no stamp of x_tables. Nothing but
// a reading finds it, which must not take it for what it remembers.

// saved are the lines of a table that is about to be replaced.
type saved []string

// change puts another text in the place of what an expression finds first.
func (s saved) change(expression, with string) bool {
	x := regexp.MustCompile(expression)
	for i, l := range s {
		if now := x.ReplaceAllString(l, with); now != l {
			s[i] = now
			return true
		}
	}
	return false
}

// exchange makes the parts that an expression finds in two lines change places. The lines
// are of one chain, or of two, and the parts differ.
func (s saved) exchange(expression string, oneChain bool) bool {
	x := regexp.MustCompile(expression)
	for i, a := range s {
		for j := i + 1; j < len(s); j++ {
			one, other := x.FindString(a), x.FindString(s[j])
			if one == "" || other == "" || one == other || (chainIn(a) == chainIn(s[j])) != oneChain {
				continue
			}
			s[i], s[j] = strings.Replace(a, one, other, 1), strings.Replace(s[j], other, one, 1)
			return true
		}
	}
	return false
}

func chainIn(line string) string {
	chain, _, _ := splitRule([]byte(line))
	return string(chain)
}

// replace replaces a table by what is made of its lines.
func (n *netns) replace(t *testing.T, program, table string, edit func(saved) bool) {
	t.Helper()
	lines := saved(strings.Split(n.sh(t, "$"+program+"-save -t "+table), "\n"))
	if !edit(lines) {
		t.Fatal("nothing to damage")
	}
	file := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	n.sh(t, "$"+program+"-restore -T "+table+" < "+file)
}

const dnat = `-j DNAT --to-destination .*`

// damages are of the same size as what they damage.
var damages = map[string]struct {
	table string
	edit  func(saved) bool
}{
	"an endpoint's address": {"nat", func(s saved) bool { return s.change(`^(-A KUBE-SVC-.*--to-destination .*)\d(\]?:\d+)$`, "${1}9$2") }},
	"an endpoint's port":    {"nat", func(s saved) bool { return s.change(`^(-A KUBE-SVC-.*--to-destination .*:)\d+$`, "${1}9") }},
	"a Service's address": {"nat", func(s saved) bool {
		return s.change(`^(-A KUBE-SVC-T-[^ ]* -d [^ ]*)\d(/(?:32|128) -p tcp)`, "${1}9$2")
	}},
	"the length of a prefix":  {"nat", func(s saved) bool { return s.change(`^(-A KUBE-SERVICES -d [^ ]+)/(?:12|64) `, "$1/9 ") }},
	"a Service's port":        {"nat", func(s saved) bool { return s.change(`^(-A KUBE-SVC-T-.* --dport )\d+ -j`, "${1}9 -j") }},
	"a protocol":              {"nat", func(s saved) bool { return s.change(`^(-A KUBE-SVC-T-.*) -p tcp (.*) -m tcp `, "$1 -p udp $2 -m udp ") }},
	"a probability":           {"nat", func(s saved) bool { return s.change(`^(-A KUBE-SVC-.*--probability 0\.)\d+`, "${1}12500000000") }},
	"how long a list is":      {"nat", func(s saved) bool { return s.change(`^(-A KUBE-SVC-.* --seconds )\d+`, "${1}7") }},
	"the name of a list":      {"nat", func(s saved) bool { return s.change(`^(-A KUBE-SVC-.* --name KUBE-SEP-).`, "${1}7") }},
	"an inverted flag":        {"nat", func(s saved) bool { return s.change(`^(-A KUBE-SVC-.*) ! (-s .* -j KUBE-MARK-MASQ)`, "$1 $2") }},
	"a comment's letter":      {"nat", func(s saved) bool { return s.change(`^(-A KUBE-SVC-T-.*--comment ".*)cluster IP"`, `${1}cluster Ip"`) }},
	"a mark":                  {"nat", func(s saved) bool { return s.change(`^(-A KUBE-MARK-MASQ .*)0x4000`, "${1}0x8000") }},
	"a jump's target":         {"nat", func(s saved) bool { return s.exchange(`-g KUBE-SVC-[A-Z2-7]{16}.*`, true) }},
	"targets of two chains":   {"nat", func(s saved) bool { return s.exchange(`-g KUBE-SVC-[A-Z2-7]{16}.*`, false) }},
	"a jump that returns not": {"nat", func(s saved) bool { return s.change(`^(-A KUBE-.*) -j (KUBE-SVC-T-)`, "$1 -g $2") }},
	"two rules swapped":       {"nat", func(s saved) bool { return s.exchange(`-p tcp -m statistic .*-j DNAT .*`, true) }},
	"a rule in another chain": {"nat", func(s saved) bool { return s.exchange(dnat, false) }},
	"an option of a target":   {"nat", func(s saved) bool { return s.change(`^(-A KUBE-POSTROUTING .*-j MASQUERADE) --random-fully`, "$1") }},
	"a verdict":               {"filter", func(s saved) bool { return s.change(`^(-A KUBE-.*-j )DROP$`, "${1}ACCEPT") }},
	"a state":                 {"filter", func(s saved) bool { return s.change(`^(-A KUBE-.*--ctstate )INVALID `, "${1}NEW ") }},
	"how it is refused": {"filter", func(s saved) bool {
		return s.change(`icmp-port-unreachable`, "icmp-net-unreachable") || s.change(`icmp6-port-unreachable`, "icmp6-addr-unreachable")
	}},
	"a counter": {"filter", func(s saved) bool {
		return s.change(`(--nfacct-name +)ct_state_invalid_dropped_pkts`, "${1}localhost_nps_accepted_pkts")
	}},
}

// TestDamageIsSeen: a survey finds each, though it reads few rules.
func TestDamageIsSeen(t *testing.T) {
	r := newRemembering(t, iptables.Legacy)
	whole := r.survey()
	for _, name := range slices.Sorted(maps.Keys(damages)) {
		for _, program := range []string{"IPT", "IP6T"} {
			t.Run(fmt.Sprintf("%s of %s", name, program), func(t *testing.T) {
				r.T = t
				before, stamp := surveyed(t, r.d), r.d.stamp
				r.replace(t, program, damages[name].table, damages[name].edit)
				if now, err := r.Stamp(t.Context()); err != nil || now != stamp {
					t.Fatalf("the damage can be seen without a reading: %v, %v", err, now)
				}
				if read := r.survey(); read == 0 || read > whole/2 {
					t.Errorf("%d rules of %d were read", read, whole)
				}
				if maps.Equal(before, surveyed(t, r.d)) {
					t.Error("nothing is seen")
				}
				r.bed.Load(t)
				r.bed.Sync(t)
			})
		}
	}
}

// TestRemembersEveryKind: two readings of a rule of any kind that we write find the same, so
// that what the kernel keeps for itself in a rule is not shown.
func TestRemembersEveryKind(t *testing.T) {
	r := newRemembering(t, iptables.Legacy)
	for _, f := range bothFamilies {
		kinds := 0
		for tab, rules := range r.d.samples(f) {
			lines := []string{"*" + tab.String(), ":" + probeChain + " - [0:0]", ":" + probeTarget + " - [0:0]"}
			for _, rule := range rules {
				lines = append(lines, "-A "+probeChain+" "+rule)
			}
			kinds += len(rules)
			in := strings.Join(append(lines, "COMMIT\n"), "\n")
			if _, err := r.Restore(t.Context(), iptables.Restore{Family: kernelFamily(f), Input: []byte(in), Commits: 1}); err != nil {
				t.Fatal(err)
			}
		}
		first := r.survey()
		if again := r.survey(); again != 0 || first < kinds || kinds < 30 {
			t.Errorf("%s: %d rules of %d kinds were read, then %d", f, first, kinds, again)
		}
	}
}
