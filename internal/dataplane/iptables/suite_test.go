package iptables

import (
	"errors"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

func TestSuiteOnModel(t *testing.T) {
	dataplanetest.Run(t, func(t *testing.T) *dataplanetest.Subject {
		k := iptables.NewFake()
		return subject(t, Params{Kernel: k}, func(t testing.TB) { foreign(t, k, "*nat", "-A INPUT -p tcp -j RETURN", "COMMIT") }, modelEdits(k))
	})
}

func TestSuiteOnKernel(t *testing.T) {
	eachBackend(t, func(t *testing.T, b iptables.Backend) {
		dataplanetest.Run(t, func(t *testing.T) *dataplanetest.Subject {
			ns := ownNetns(t, b)
			s := subject(t, Params{Kernel: ns.Conn, Counters: ns.counters(t)}, func(t testing.TB) { touch(t, ns) }, edits(ns))
			s.Few = true // iptables is run for each chain
			return s
		})
	})
}

// foreign is somebody else's restore.
func foreign(t testing.TB, k iptables.Kernel, lines ...string) {
	t.Helper()
	in := strings.Join(lines, "\n") + "\n"
	if _, err := k.Restore(t.Context(), iptables.Restore{Family: iptables.IPv4, Input: []byte(in), Commits: 1}); err != nil {
		t.Fatalf("foreign write: %v", err)
	}
}

// modelEdits are a few of what others do; edits has them all, on real kernels.
func modelEdits(k iptables.Kernel) []dataplanetest.Edit {
	do := func(name string, lines ...string) dataplanetest.Edit {
		return dataplanetest.Edit{Name: name, Do: func(t testing.TB) { foreign(t, k, append(append([]string{"*nat"}, lines...), "COMMIT")...) }}
	}
	return []dataplanetest.Edit{
		do("dispatch flushed", ":KUBE-SERVICES - [0:0]"),
		do("rule added in front", "-I KUBE-POSTROUTING -j RETURN"),
		do("jump deleted", "-D OUTPUT "+jumps()[1].rule),
		beside(do("jump twice", "-A OUTPUT "+jumps()[1].rule)),
		beside(do("foreign chains", ":KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]", ":KUBE-SVC-T-1.2.3.0-28 - [0:0]")),
	}
}

// beside marks an edit that leaves all that is ours as it was.
func beside(e dataplanetest.Edit) dataplanetest.Edit {
	e.Beside = true
	return e
}

// subject wraps a kernel so that the suite can make it fail.
func subject(t *testing.T, p Params, touch func(testing.TB), edits []dataplanetest.Edit) *dataplanetest.Subject {
	t.Helper()
	faulty := &iptables.Faulty{Kernel: p.Kernel}
	d := New(Params{Kernel: faulty, Counters: p.Counters})
	s := &dataplanetest.Subject{
		Driver: d,
		Restart: func() dataplane.Driver { // without a Probe, which would write beside the first one
			again := New(p)
			again.counts = d.counts
			return again
		},
		Families: []model.Family{model.IPv4, model.IPv6},
		Edits:    edits,
		Touch:    touch,
		Poison:   strangeFamily,
		Lingers:  func(string) bool { return false },
	}
	s.FailApply = func(after bool) {
		faulty.OnRestore = func(iptables.Restore) iptables.Fault {
			faulty.OnRestore = nil
			return iptables.Fault{Err: errors.New("signal: killed, says the test"), After: after}
		}
	}
	s.InterruptLoad = func() {
		faulty.OnSave = func(iptables.Family, string) error {
			faulty.OnSave = nil
			touch(t)
			return nil
		}
	}
	if caps, err := s.Driver.Probe(t.Context()); err != nil || len(caps.Families) != 2 {
		t.Fatalf("probe: %v, %v", caps, err)
	}
	if want := p.Counters != nil; d.counts != want {
		t.Fatalf("rules count: %t, want %t", d.counts, want)
	}
	return s
}

// strangeFamily has an endpoint that policy never lets through.
func strangeFamily(f model.Family) *model.Frontend {
	fe := dataplanetest.ClusterIP(f, 4000, 2)
	other := map[model.Family]model.Family{model.IPv4: model.IPv6, model.IPv6: model.IPv4}[f]
	fe.Backends[1].Addr = dataplanetest.Backends(other, 1, 1)[0].Addr
	return &fe
}

// touch writes beside us: a rule of somebody else's, of another size each time.
func touch(t testing.TB, ns *netns) {
	t.Helper()
	ns.sh(t, "$IPT -t nat -A INPUT -p tcp --dport 7 -j RETURN")
}

// edits are what others do to our chains.
func edits(ns *netns) []dataplanetest.Edit {
	do := func(name, script string) dataplanetest.Edit {
		return dataplanetest.Edit{Name: name, Do: func(t testing.TB) { ns.sh(t, script) }}
	}
	const aChain = `C=$($IPT-save -t nat | sed -n 's/^:\(KUBE-SVC-[^- ]*\) .*/\1/p' | head -1); `
	return []dataplanetest.Edit{
		do("dispatch flushed", "$IPT -t nat -F KUBE-SERVICES"),
		do("service chain flushed", aChain+"$IPT -t nat -F $C"),
		do("rule deleted", aChain+"$IPT -t nat -D $C 1"),
		do("rule added in front", "$IP6T -t nat -I KUBE-POSTROUTING -j RETURN"),
		do("foreign line in a bucket", `C=$($IPT-save -t nat | sed -n 's/^:\(KUBE-SVC-T-[^ ]*-28\) .*/\1/p' | head -1); $IPT -t nat -I $C -j RETURN`),
		do("line twice", `C=$($IPT-save -t nat | sed -n 's/^-A \(KUBE-SVC-T-.*-28 .*\)/\1/p' | tail -1); eval $IPT -t nat -A $C`),
		do("jump deleted", `$IPT -t nat -D OUTPUT 1`),
		beside(do("jump twice", `$IPT-save -t nat | sed -n 's/^-A OUTPUT /$IPT -t nat -A OUTPUT /p' > $XTABLES_LOCKFILE.sh; IPT=$IPT sh -e $XTABLES_LOCKFILE.sh`)),
		beside(do("chain of an old kube-proxy", "$IPT -t nat -N KUBE-SEP-AAAAAAAAAAAAAAAA; $IPT -t nat -A KUBE-SEP-AAAAAAAAAAAAAAAA -j RETURN")),
		beside(do("chain of a Service that is gone", "$IP6T -t nat -N KUBE-SVC-AAAAAAAAAAAAAAAA; $IP6T -t nat -A KUBE-SVC-AAAAAAAAAAAAAAAA -j KUBE-MARK-MASQ")),
		beside(do("dispatch chains of an earlier release", "$IPT -t nat -N KUBE-N-PORTS; $IPT -t nat -N KUBE-T-1.2.3.0-28; "+
			"$IPT -t nat -A KUBE-N-PORTS -j KUBE-T-1.2.3.0-28; "+aChain+"$IPT -t nat -A KUBE-T-1.2.3.0-28 -d 1.2.3.4 -j $C")),
		beside(do("empty bucket", "$IPT -t nat -N KUBE-SVC-T-1.2.3.0-28; $IPT -t filter -N KUBE-X-9.9.9.0-28")),
		do("nat flushed and deleted", "$IPT -t nat -F; $IPT -t nat -X"),
		do("filter flushed", "$IP6T -F"),
		do("canary deleted", "$IPT -t filter -X KUBE-PROXY-CANARY"),
	}
}
