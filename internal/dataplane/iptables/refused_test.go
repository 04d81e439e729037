package iptables

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// TestRefusalWithoutAName: x_tables refuses at COMMIT and does not say what. The
// driver finds the chain, and only that one.
func TestRefusalWithoutAName(t *testing.T) {
	ns := ownNetns(t, iptables.Legacy)
	k := &lacking{Kernel: ns.Conn, match: "nothing"}
	d := New(Params{Kernel: k})
	bed := builtOn(t, d)
	for i := range 40 {
		bed.Want(dataplanetest.Service(i), dataplanetest.ClusterIP(model.IPv4, i, 5))
	}
	odd := dataplanetest.ClusterIP(model.IPv4, 17, 5)
	odd.Backends[3].Port = 4711
	bed.Want(dataplanetest.Service(17), odd)
	bed.Load(t)
	k.match = ":4711"
	_, err := bed.Apply(t.Context(), bed.Pending())
	var invalid *dataplane.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Keys) != 1 {
		t.Fatalf("apply says %v", err)
	}
	want := "chain nat KUBE-SVC-" + shortHash(portName(&odd)+"tcp") + " (IPv4)"
	if got := d.KeyString(invalid.Keys[0]); got != want {
		t.Errorf("blames %s, want %s", got, want)
	}
	if saved := ns.save(t); strings.Contains(saved, probeChain) {
		t.Error("the search left its chain behind")
	}
}

// TestRebuild: what is not in the batch goes, also what nobody had seen.
func TestRebuild(t *testing.T) {
	eachBackend(t, func(t *testing.T, b iptables.Backend) {
		ns := ownNetns(t, b)
		d := New(Params{Kernel: ns.Conn})
		bed := builtOn(t, d)
		bed.Sync(t)
		before := sections(ns.save(t))
		ns.sh(t, "$IPT -t nat -N KUBE-SVC-AAAAAAAAAAAAAAAA; $IPT -t nat -A KUBE-SVC-AAAAAAAAAAAAAAAA -j KUBE-MARK-MASQ; $IPT -t nat -I KUBE-SERVICES -j RETURN; $IPT -t nat -D OUTPUT 1")
		bed.Rebuild = []model.Family{model.IPv4, model.IPv6}
		bed.Sync(t)
		after := sections(ns.save(t))
		for name, rules := range after {
			if before[name] != rules {
				t.Errorf("%s is now\n%s, was\n%s", name, rules, before[name])
			}
		}
		if len(after) != len(before) {
			t.Errorf("%d chains, want %d", len(after), len(before))
		}
	})
}

// TestTheSameDamageTwice: with x_tables it gives the same stamp twice, which is news
// the second time too. No audit runs here.
func TestTheSameDamageTwice(t *testing.T) {
	eachBackend(t, func(t *testing.T, b iptables.Backend) {
		ns := ownNetns(t, b)
		d := New(Params{Kernel: ns.Conn})
		bed := builtOn(t, d)
		bed.Sync(t)
		whole := ns.save(t)
		ctx, stop := context.WithCancel(t.Context())
		bell := make(chan struct{}, 1)
		done := make(chan error, 1)
		go func() {
			done <- d.Watch(ctx, func() {
				select {
				case bell <- struct{}{}:
				default:
				}
			})
		}()
		for round := range 3 {
			ns.sh(t, "$IPT -t nat -F KUBE-SERVICES")
			select {
			case <-bell:
			case <-time.After(30 * time.Second):
				t.Fatalf("round %d: no alarm", round)
			}
			if changed, err := d.Changed(t.Context()); !changed || err != nil {
				t.Fatalf("round %d: Changed says %v, %v", round, changed, err)
			}
			if drift := bed.Load(t); len(drift) == 0 {
				t.Errorf("round %d: no drift", round)
			}
			bed.Sync(t)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := ns.save(t); got != whole {
			t.Error("not as it was before")
		}
	})
}

// recorder keeps what was restored.
type recorder struct {
	iptables.Kernel
	inputs []string
}

func (r *recorder) Restore(ctx context.Context, in iptables.Restore) (iptables.Stamp, error) {
	r.inputs = append(r.inputs, string(bytes.Clone(in.Input)))
	return r.Kernel.Restore(ctx, in)
}

// TestRefusalsStandBeforeNATEnds: where nat stops to translate and a refusal takes its
// place, the refusal is written first, and where nat begins again the refusal goes
// last: no packet finds neither.
func TestRefusalsStandBeforeNATEnds(t *testing.T) {
	r := &recorder{Kernel: iptables.NewFake()}
	d := New(Params{Kernel: r, Families: []model.Family{model.IPv4}})
	bed := dataplanetest.NewBed(d, dataplanetest.View())
	bed.Load(t)
	bed.Base()
	served, empty := dataplanetest.ClusterIP(model.IPv4, 1, 2), dataplanetest.ClusterIP(model.IPv4, 1, 0)
	empty.Verdict = model.Reject
	other, otherEmpty := dataplanetest.ClusterIP(model.IPv4, 2, 2), dataplanetest.ClusterIP(model.IPv4, 2, 0)
	otherEmpty.Verdict = model.Reject
	steps := []struct {
		name          string
		first, second model.Frontend
		want          []string // tables in the order of their sections
	}{
		{"the first build", served, otherEmpty, []string{"nat", "filter", "mangle"}},
		{"endpoints go", empty, otherEmpty, []string{"filter", "nat"}},
		{"endpoints come", served, otherEmpty, []string{"nat", "filter"}},
		{"one goes, one comes", empty, other, []string{"filter", "nat", "filter"}},
	}
	for _, s := range steps {
		bed.Want(dataplanetest.Service(1), s.first)
		bed.Want(dataplanetest.Service(2), s.second)
		r.inputs = nil
		bed.Sync(t)
		var got []string
		for _, in := range r.inputs {
			for l := range strings.Lines(in) {
				if table, ok := strings.CutPrefix(l, "*"); ok {
					got = append(got, strings.TrimSpace(table))
				}
			}
		}
		if strings.Join(got, " ") != strings.Join(s.want, " ") {
			t.Errorf("%s: wrote %v, want %v", s.name, got, s.want)
		}
		if s.name == "one goes, one comes" && len(r.inputs) == 1 {
			first, _, _ := strings.Cut(r.inputs[0], "COMMIT")
			if !strings.Contains(first, readable(portName(&otherEmpty))+" has no endpoints") {
				t.Errorf("the first section drops a refusal before nat translates: %s", first)
			}
		}
	}
}

// plain is all that a rule of ours is made of; quoted is a comment.
var (
	plain  = regexp.MustCompile(`^[A-Za-z0-9 /:.,_!+=()\[\]-]*$`)
	quoted = regexp.MustCompile(`--comment "[A-Za-z0-9 /:.,;_-]{1,255}"`)
)

// TestTextsFromManifests: names, the only texts that people write and rules hold,
// reach a rule in letters that cannot end a comment, begin another option or another
// line. A folder of manifests has no API server that would refuse them.
func TestTextsFromManifests(t *testing.T) {
	evil := []string{"a\" -j ACCEPT #", "a'b", "a\nCOMMIT\n*filter\n-A INPUT -j ACCEPT", "a\\", "a`b`", "$(id)", "a b", "a\x00b", "\u00e4", strings.Repeat("long", 100)}
	d := New(Params{Kernel: iptables.NewFake()})
	view := dataplanetest.View()
	render := func(fe model.Frontend, text string) (rules []string) {
		fe.Service, fe.Port = model.ServiceKey{Namespace: text, Name: text}, text
		d.Render(&fe, &view, func(o dataplane.Object) {
			_, rule := chainOf(o.Key)
			rules = append(rules, strings.Split(rule+"\n"+o.Value, "\n")...)
		})
		return rules
	}
	for _, list := range dataplanetest.Catalogue([]model.Family{model.IPv4, model.IPv6}) {
		for _, fe := range list {
			innocent := render(fe, "name")
			for _, text := range evil {
				rules := render(fe, text)
				if len(rules) != len(innocent) {
					t.Fatalf("%q makes %d lines, want %d", text, len(rules), len(innocent))
				}
				for _, r := range rules {
					if r != present && !plain.MatchString(quoted.ReplaceAllString(r, "")) {
						t.Fatalf("%q reaches a rule: %q", text, r)
					}
				}
			}
		}
	}
}

// TestWhoseJump: a rule to our chains is ours only where and as we, or a kube-proxy,
// write them. Anybody may lead to our chains.
func TestWhoseJump(t *testing.T) {
	k := iptables.NewFake()
	d := New(Params{Kernel: k, Families: []model.Family{model.IPv4}})
	bed := dataplanetest.NewBed(d, dataplanetest.View())
	bed.Load(t)
	bed.Base()
	bed.Sync(t)
	theirs := []string{
		"-A OUTPUT -m owner --uid-owner 5 -j KUBE-SERVICES",
		`-A OUTPUT -m comment --comment "mine" -j KUBE-SERVICES`,
		`-A MINE -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
	}
	foreign(t, k, append(append([]string{"*nat", ":MINE - [0:0]"}, theirs...), "COMMIT")...)
	if drift := bed.Load(t); len(drift) > 0 {
		t.Errorf("taken for ours: %v", d.KeyString(drift[0].Key))
	}
	foreign(t, k, "*nat", `-A OUTPUT -m comment --comment "kubernetes service portals of an old release" -j KUBE-SERVICES`, "COMMIT")
	if drift := bed.Load(t); len(drift) != 1 {
		t.Errorf("an old kube-proxy's jump: %d drifted, want 1", len(drift))
	}
	bed.Sync(t)
	left := strings.Join(lines(t, k, "nat"), "\n")
	for _, r := range theirs {
		if !strings.Contains(left, r) {
			t.Errorf("gone: %s", r)
		}
	}
	if strings.Contains(left, "old release") {
		t.Error("the old kube-proxy's jump is still there")
	}
}

func lines(t *testing.T, k iptables.Kernel, table string) (out []string) {
	t.Helper()
	err := k.Save(t.Context(), iptables.IPv4, table, func(l []byte) error { out = append(out, string(l)); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestOneFamilyDeniedAfterTheOtherWasWritten: a security module denies IPv6 while the agent
// runs. What was written for IPv4 is there, so that the error does not say that nothing was done.
func TestOneFamilyDeniedAfterTheOtherWasWritten(t *testing.T) {
	for _, c := range []struct {
		denied iptables.Family
		inPart bool
	}{{iptables.IPv6, true}, {iptables.IPv4, false}} {
		k := &iptables.Faulty{Kernel: iptables.NewFake()}
		bed := builtOn(t, New(Params{Kernel: k}))
		bed.Sync(t)
		k.OnRestore = func(r iptables.Restore) iptables.Fault {
			if r.Family == c.denied {
				return iptables.Fault{Err: &iptables.RestoreError{Program: "restore", Message: "Permission denied (you must be root)"}}
			}
			return iptables.Fault{}
		}
		bed.Want(dataplanetest.Service(0), dataplanetest.ClusterIP(model.IPv4, 0, 9), dataplanetest.ClusterIP(model.IPv6, 0, 9))
		_, err := bed.Apply(t.Context(), bed.Pending())
		if !errors.Is(err, dataplane.ErrUnsupported) || dataplane.NothingDone(err) == c.inPart {
			t.Errorf("IPv%d is denied: %v, nothing done %t", c.denied, err, dataplane.NothingDone(err))
		}
	}
}
