package iptables

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// readers are the backends whose rules are read without a program.
var readers = [...]iptables.Backend{iptables.Legacy, iptables.NFT}

// eachReader runs a test on each.
func eachReader(t *testing.T, test func(t *testing.T, ns *netns)) {
	for _, b := range readers {
		t.Run(string(b), func(t *testing.T) { test(t, ownNetns(t, b)) })
	}
}

// chainLines are a table's lines, chain by chain; a chain that is there has an entry.
type chainLines map[string][]string

func (c chainLines) take(line []byte) error {
	if name, ok := declared(line); ok {
		c[string(name)] = append(c[string(name)], "")
	} else if chain, _, ok := splitRule(line); ok {
		c[string(chain)] = append(c[string(chain)], string(line))
	}
	return nil
}

// printed are the lines that the program prints, as far as Read has to give them.
func printed(t *testing.T, ns *netns, f model.Family, tab table) chainLines {
	t.Helper()
	all := chainLines{}
	ours := func(chain string) bool { return kindOfChain(tab, chain) != 0 }
	err := ns.Save(t.Context(), kernelFamily(f), tab.String(), func(line []byte) error {
		name, declares := declared(line)
		chain, rule, _ := splitRule(line)
		to := string(rule[bytes.LastIndexByte(rule, ' ')+1:])
		leads := builtIn(string(chain)) && ours(to) && (bytes.HasSuffix(rule, []byte("-j "+to)) || bytes.HasSuffix(rule, []byte("-g "+to)))
		if declares && ours(string(name)) || !declares && ours(string(chain)) || leads {
			return all.take(line)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func read(t *testing.T, ns *netns, f model.Family, tab table) (chainLines, error) {
	t.Helper()
	all := chainLines{}
	err := ns.Read(t.Context(), oursIn(f, tab), all.take)
	return all, err
}

// sameAsPrinted compares both readings of all tables, and gives the number of rules.
func sameAsPrinted(t *testing.T, ns *netns) (rules int) {
	t.Helper()
	for _, f := range bothFamilies {
		for _, tab := range tables {
			want := printed(t, ns, f, tab)
			got, err := read(t, ns, f, tab)
			if err != nil {
				t.Errorf("%s, table %s: %v", f, tab, err)
				continue
			}
			for _, chain := range slices.Sorted(maps.Keys(want)) {
				rules += len(want[chain]) - 1
				if !slices.Equal(got[chain], want[chain]) {
					t.Errorf("%s, table %s, chain %s:\nread    %q\nprinted %q", f, tab, chain, got[chain], want[chain])
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s, table %s: %d chains read, %d printed", f, tab, len(got), len(want))
			}
		}
	}
	return rules
}

// TestReadIsWhatIsPrinted: with nothing there, with the whole catalogue, and beside what
// strangers have.
func TestReadIsWhatIsPrinted(t *testing.T) {
	eachReader(t, func(t *testing.T, ns *netns) {
		sameAsPrinted(t, ns)
		d := New(Params{Kernel: ns.Conn, Counters: ns.counters(t)})
		if caps, err := d.Probe(t.Context()); err != nil || len(caps.Notes) > 0 {
			t.Fatalf("probe: %q, %v", caps.Notes, err)
		}
		builtOn(t, d).Sync(t)
		if n := sameAsPrinted(t, ns); n < 500 {
			t.Errorf("only %d rules were compared", n)
		}
		for _, edit := range strangers(ns) {
			edit.Do(t)
			if sameAsPrinted(t, ns); t.Failed() {
				t.Fatalf("after %q", edit.Name)
			}
		}
	})
}

// TestReadKnowsNoPrinting: what the programs print does not matter to what Read gives.
func TestReadKnowsNoPrinting(t *testing.T) {
	for _, b := range readers {
		printing(t, b, `s/ --dport / --dport  /`)
		ns := ownNetns(t, b)
		d := New(Params{Kernel: ns.Conn})
		if caps, err := d.Probe(t.Context()); err != nil || len(caps.Notes) > 0 {
			t.Fatalf("probe: %q, %v", caps.Notes, err)
		}
		bed := builtOn(t, d)
		bed.Sync(t)
		if drift := bed.Load(t); len(drift) > 0 {
			t.Errorf("%s: %d objects drifted, among them %v", b, len(drift), drift[0])
		}
	}
}

// strangers have rules that Read need not know, because they are in nobody's way.
func strangers(ns *netns) []dataplanetest.Edit {
	do := func(script string) dataplanetest.Edit {
		return dataplanetest.Edit{Name: script, Do: func(t testing.TB) { ns.sh(t, script) }}
	}
	return []dataplanetest.Edit{
		do(`$IPT -A FORWARD -m limit --limit 3/sec -j ACCEPT; $IP6T -A INPUT -m string --string x --algo bm -j DROP`),
		do(`$IPT -N THEIRS; $IPT -A THEIRS -m limit --limit 3/sec -j KUBE-FORWARD; $IPT -I FORWARD -j THEIRS`),
		do(`$IPT -A FORWARD -p tcp ! --syn -i eth0 -o eth+ -j RETURN; $IPT -t nat -A OUTPUT -p 47 -f -j ACCEPT`),
		do(`$IPT -N KUBE-FIREWALL; $IPT -A KUBE-FIREWALL -m limit --limit 3/sec -j DROP; $IPT -A INPUT -j KUBE-FIREWALL`),
		do(`$IPT -P FORWARD DROP; $IPT -A FORWARD`),
		do(`$IPT -A OUTPUT ! -s 10.0.0.0/8 -d 10.1.0.0/16 ! -o eth+ -p udp -m udp ! --sport 1:2 --dport 53 -m comment --comment "it's \"a\" \\ b" -j KUBE-FORWARD`),
		do(`$IP6T -A INPUT -i eth0 ! -d 2001:db8::/33 ! -p tcp -m mark ! --mark 0x5 -g KUBE-NODEPORTS`),
		do(`$IPT -t nat -A KUBE-POSTROUTING -m statistic --mode random ! --probability 0.3 -m addrtype ! --src-type LOCAL,UNICAST -j MASQUERADE --random`),
		do(`$IPT -t nat -A KUBE-SERVICES -m recent ! --update --seconds 5 --hitcount 2 --rttl --name a.b --mask 255.255.0.0 --rdest -j MARK --set-xmark 0x1/0xffffffff; $IP6T -t nat -A KUBE-POSTROUTING -j MASQUERADE --random --random-fully`),
		do(`$IPT -A KUBE-FORWARD -p tcp -m conntrack ! --ctstate NEW,RELATED,INVALID,SNAT -j REJECT --reject-with icmp-admin-prohibited; $IP6T -A KUBE-FORWARD -j REJECT --reject-with icmp6-adm-prohibited`),
		do(`$IPT -A KUBE-FORWARD -m cluster --cluster-total-nodes 4 ! --cluster-local-nodemask 0x3 --cluster-hash-seed 0x7 -m comment --comment word_-9 -m mark --mark 0x5`),
		do(`$IPT -A KUBE-FORWARD -p sctp -m sctp ! --sport 7 ! --dport 1:9 -j ACCEPT; $IPT -A KUBE-FORWARD -p icmp -j KUBE-FIREWALL; $IP6T -t nat -A KUBE-SERVICES -p udp -m addrtype --dst-type ANYCAST -j DNAT --to-destination 2001:db8::1`),
		do(`$IPT -F; $IPT -t nat -F; $IP6T -F`),
		do(`$IP6T -t nat -F; $IP6T -t nat -X; $IPT -X`),
	}
}

// TestUnreadableRules: what Read does not know in a chain of ours, or on the way to one,
// makes it say so, and the driver read that table as before and forget what was read of it.
func TestUnreadableRules(t *testing.T) {
	for name, c := range map[string]struct{ does, undoes string }{
		"a match":           {`$IPT -t nat -I KUBE-SERVICES -m limit --limit 3/sec -j RETURN`, `$IPT -t nat -D KUBE-SERVICES 1`},
		"a target":          {`$IPT -t nat -I KUBE-POSTROUTING -j LOG`, `$IPT -t nat -D KUBE-POSTROUTING 1`},
		"an option":         {`$IPT -t nat -A KUBE-SERVICES -p tcp --syn -j RETURN`, `$IPT -t nat -D KUBE-SERVICES -p tcp --syn -j RETURN`},
		"a protocol":        {`$IPT -t nat -I KUBE-SERVICES -p 47 -j RETURN`, `$IPT -t nat -D KUBE-SERVICES 1`},
		"fragments":         {`$IPT -t nat -I KUBE-SERVICES -f -j RETURN`, `$IPT -t nat -D KUBE-SERVICES 1`},
		"a jump to us":      {`$IPT -t nat -I OUTPUT -m limit --limit 3/sec -j KUBE-SERVICES`, `$IPT -t nat -D OUTPUT 1`},
		"a range of ports":  {`$IPT -t nat -I KUBE-SERVICES -p tcp -j DNAT --to-destination 10.0.0.1:1-2`, `$IPT -t nat -D KUBE-SERVICES 1`},
		"a mask with holes": {`$IPT -t nat -I KUBE-SERVICES -d 10.0.0.1/255.0.0.255 -j RETURN`, `$IPT -t nat -D KUBE-SERVICES 1`},
	} {
		t.Run(name, func(t *testing.T) {
			eachReader(t, func(t *testing.T, ns *netns) {
				d := New(Params{Kernel: ns.Conn})
				if caps, err := d.Probe(t.Context()); err != nil || len(caps.Notes) > 0 {
					t.Fatalf("probe: %q, %v", caps.Notes, err)
				}
				bed := builtOn(t, d)
				bed.Sync(t)
				whole := surveyed(t, d)
				ns.sh(t, c.does)
				if _, err := read(t, ns, model.IPv4, nat); !errors.Is(err, iptables.ErrUnreadable) {
					t.Errorf("read gives %v", err)
				}
				if _, err := read(t, ns, model.IPv4, filter); err != nil {
					t.Errorf("another table: %v", err)
				}
				foreign := surveyed(t, d)
				d.own = nil // the programs
				if want := surveyed(t, d); !maps.Equal(foreign, want) {
					t.Errorf("%d objects are read, and %d if all is printed", len(foreign), len(want))
				}
				ns.sh(t, c.undoes)
				if again := surveyed(t, d); !maps.Equal(again, whole) {
					t.Error("the rules are not what they were")
				}
			})
		})
	}
}

func surveyed(t *testing.T, d *Driver) map[dataplane.Key]string {
	t.Helper()
	out := map[dataplane.Key]string{}
	if err := d.Survey(t.Context(), func(k dataplane.Key, v string) { out[k] = v }); err != nil {
		t.Fatal(err)
	}
	return out
}

// misreader is a Kernel that reads some word otherwise, as one might on a kernel or with
// programs that keep rules in another way.
type misreader struct {
	iptables.Kernel
	word, as string
	asked    *atomic.Int64
}

func (m misreader) Read(ctx context.Context, r iptables.Reading, emit func([]byte) error) error {
	m.asked.Add(1)
	return m.Kernel.Read(ctx, r, func(line []byte) error { return emit(bytes.ReplaceAll(line, []byte(m.word), []byte(m.as))) })
}

// TestMisreadings: one kind of rule that is not read as it was written makes the programs
// read, and a note shows it.
func TestMisreadings(t *testing.T) {
	for name, c := range map[string]struct{ word, as string }{
		"another word": {"--random-fully", "--random"},
		"nothing":      {"-A KUBE-FAIRLEAD-PROBE -m addrtype", "-A OTHER -m addrtype"},
		"one blank":    {"--nfacct-name  ", "--nfacct-name "},
	} {
		t.Run(name, func(t *testing.T) {
			eachReader(t, func(t *testing.T, ns *netns) {
				var asked atomic.Int64
				d := New(Params{Kernel: misreader{ns.Conn, c.word, c.as, &asked}, Counters: ns.counters(t)})
				caps, err := d.Probe(t.Context())
				if err != nil || len(caps.Families) != 2 {
					t.Fatalf("probe: %+v, %v", caps, err)
				}
				if len(caps.Notes) != 2 || !strings.Contains(caps.Notes[0], "IPv4: rules are read with iptables-save") || !strings.Contains(caps.Notes[0], "wrote ") {
					t.Errorf("notes are %q", caps.Notes)
				}
				bed := builtOn(t, d)
				bed.Sync(t)
				before := asked.Load()
				if drift := bed.Load(t); len(drift) > 0 || asked.Load() != before {
					t.Errorf("%d objects drifted; %d readings after the probe", len(drift), asked.Load()-before)
				}
			})
		})
	}
}
