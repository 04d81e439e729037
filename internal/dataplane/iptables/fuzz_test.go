package iptables

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// FuzzSaved: whatever iptables-save prints, reading it neither fails nor takes another
// chain for ours, and what an audit sums up is what Load has seen.
func FuzzSaved(f *testing.F) {
	seeds, err := filepath.Glob("testdata/saved-*.txt")
	if err != nil || len(seeds) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, name := range seeds {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), byte('n'))
		f.Add(string(text), byte('f'))
	}
	f.Add("*mangle\n:KUBE-LOCALNET - [0:0]\n-A PREROUTING -d 127.0.0.0/8 ! -i lo -m comment --comment \"block incoming localnet connections\" -j KUBE-LOCALNET\n-A KUBE-LOCALNET -j DROP\nCOMMIT\n", byte('m'))
	f.Fuzz(func(t *testing.T, text string, letter byte) {
		tab := table(letter)
		if tab != nat && tab != filter {
			tab = mangle
		}
		there := newMirror()
		d := New(Params{})
		keys := map[dataplane.Key]string{}
		l := newLoader(scan{there: &there, emit: func(k dataplane.Key, value string) {
			c, rule := chainOf(k)
			switch {
			case value == "":
				t.Errorf("%s has no value", d.KeyString(k))
			case k.Kind == kindJump && !builtIn(c.chain):
				t.Errorf("a jump in a chain that is not the kernel's: %s", d.KeyString(k))
			case k.Kind != kindJump && kindOfChain(tab, c.chain) == 0:
				t.Errorf("not ours: %s", d.KeyString(k))
			case (k.Kind == kindLine || k.Kind == kindJump) && !strings.Contains(text, strings.Split(rule, sep)[0]):
				t.Errorf("nobody wrote %q", rule)
			}
			keys[k] = value
		}}, model.IPv4, tab)
		summed := newMirror()
		digests := map[dataplane.Key]string{}
		audit := newLoader(scan{there: &summed, digests: true, emit: func(k dataplane.Key, value string) { digests[k] = value }}, model.IPv4, tab)
		learned := dialect{}
		inOrder, begun, last := true, map[string]bool{}, ""
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if err := l.read([]byte(line)); err != nil {
				t.Fatal(err)
			}
			if err := audit.read([]byte(line)); err != nil {
				t.Fatal(err)
			}
			if name, ok := declared([]byte(line)); ok {
				inOrder = inOrder && !begun[string(name)]
			}
			chain, rule, ok := splitRule([]byte(line))
			if !ok {
				continue
			}
			inOrder = inOrder && (string(chain) == last || !begun[string(chain)])
			begun[string(chain)], last = true, string(chain)
			inPieces(t, learned, string(rule))
		}
		l.end()
		audit.end()
		if !maps.EqualFunc(keys, digests, dataplane.Same) {
			t.Errorf("Load reads %q, by digests %q", keys, digests)
		}
		if !inOrder {
			return
		}
		for ref, c := range there.chains {
			if is := summed.chains[ref]; is == nil || is.sum != c.sum {
				t.Errorf("Load and audit differ about %s", ref.chain)
			}
		}
		if len(summed.chains) != len(there.chains) {
			t.Errorf("Load knows %d chains, the audit %d", len(there.chains), len(summed.chains))
		}
	})
}

// inPieces takes a rule apart and puts it together.
func inPieces(t *testing.T, learned dialect, rule string) {
	t.Helper()
	var whole strings.Builder
	for _, o := range options(rule) {
		whole.WriteString(o.text)
	}
	if got := whole.String(); strings.TrimSpace(got) != strings.TrimSpace(strings.TrimSuffix(rule, "!")) && !strings.Contains(rule, "!") {
		t.Errorf("%q in pieces is %q", rule, got)
	}
	if learned.learn(rule, rule) == nil && learned.ours(rule) != rule {
		t.Errorf("%q is taken for %q", rule, learned.ours(rule))
	}
	_ = target(rule)
	_ = lineRank(rule)
}
