package iptables

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// witness keeps what an Observer is told.
type witness struct {
	failed map[bool]int // by partial
	audits map[bool]int // by drifted
	rules  map[string][2]int
	waited int
	// counters read the dropped invalid packets and the accepted localhost ones.
	counters []func() (uint64, error)
}

func newWitness() *witness {
	return &witness{failed: map[bool]int{}, audits: map[bool]int{}, rules: map[string][2]int{}}
}

func (w *witness) RestoreFailed(_ model.Family, partial bool) { w.failed[partial]++ }
func (w *witness) IPTablesRules(table string, f model.Family, owned, written int) {
	w.rules[table+f.String()] = [2]int{owned, written}
}
func (w *witness) IPTablesAudit(_ time.Duration, drifted bool) { w.audits[drifted]++ }
func (w *witness) IPTablesContended(n int)                     { w.waited += n }
func (w *witness) IPTablesCounters(invalid, localhost func() (uint64, error)) {
	w.counters = []func() (uint64, error){invalid, localhost}
}

// builtOn is a bed with the whole catalogue in a kernel, and one change pending.
func builtOn(t *testing.T, d *Driver) *dataplanetest.Bed {
	t.Helper()
	bed := dataplanetest.NewBed(d, dataplanetest.View())
	bed.Load(t)
	bed.WantAll(dataplanetest.Catalogue([]model.Family{model.IPv4, model.IPv6}))
	bed.Sync(t)
	bed.Want(dataplanetest.Service(0), dataplanetest.ClusterIP(model.IPv4, 0, 7))
	return bed
}

// TestFailedPartialRestore: it is counted, logged with the line, and nothing more
// is written before what is there was read again.
func TestFailedPartialRestore(t *testing.T) {
	eachBackend(t, func(t *testing.T, b iptables.Backend) {
		ns := ownNetns(t, b)
		var log bytes.Buffer
		d := New(Params{Kernel: ns.Conn, Log: slog.New(slog.NewTextHandler(&log, nil))})
		w := newWitness()
		d.Observe(w)
		bed := builtOn(t, d)
		bad := dataplanetest.ClusterIP(model.IPv4, 0, 2)
		bad.Backends[1].Addr = dataplanetest.Backends(model.IPv6, 1, 1)[0].Addr
		bed.Want(dataplanetest.Service(0), bad)
		if _, err := bed.Apply(t.Context(), bed.Pending()); !errors.Is(err, dataplane.ErrConflict) {
			t.Fatalf("the first failure reads %v", err)
		}
		if w.failed[true] != 1 || w.failed[false] != 0 {
			t.Errorf("counted %v, want one partial failure", w.failed)
		}
		if !strings.Contains(log.String(), "fd00:10:244::101") || !strings.Contains(log.String(), "iptables-restore failed") {
			t.Errorf("the log lacks the line: %s", log.String())
		}
		if changed, err := d.Changed(t.Context()); !changed || err != nil {
			t.Errorf("Changed says %v, %v after a failure", changed, err)
		}
		bed.Load(t)
		var invalid *dataplane.InvalidError
		if _, err := bed.Apply(t.Context(), bed.Pending()); !errors.As(err, &invalid) || len(invalid.Keys) == 0 {
			t.Fatalf("on rules just read it reads %v", err)
		}
		bed.Want(dataplanetest.Service(0), dataplanetest.ClusterIP(model.IPv4, 0, 7))
		bed.Sync(t)
		if drift := bed.Load(t); len(drift) > 0 {
			t.Errorf("%d objects drifted", len(drift))
		}
		if got := w.rules["natIPv4"]; got[0] < 100 || got[1] == 0 || got[1] > 20 {
			t.Errorf("rules owned and written last: %v", got)
		}
	})
}

// liar is a kernel whose Restore writes something else than it was told, and
// says that all is well: what KEP-3453 could not detect.
type liar struct {
	iptables.Kernel
	from, to string
}

func (l *liar) Restore(ctx context.Context, r iptables.Restore) (iptables.Stamp, error) {
	r.Input = bytes.ReplaceAll(r.Input, []byte(l.from), []byte(l.to))
	return l.Kernel.Restore(ctx, r)
}

// TestAuditFindsWrongRestore: a rule of the same size with another port, which no
// stamp shows.
func TestAuditFindsWrongRestore(t *testing.T) {
	eachBackend(t, func(t *testing.T, b iptables.Backend) {
		ns := ownNetns(t, b)
		k := &liar{Kernel: ns.Conn}
		d := New(Params{Kernel: k, AuditPeriod: time.Millisecond})
		w := newWitness()
		d.Observe(w)
		bed := builtOn(t, d)
		k.from, k.to = ":8080", ":8088"
		bed.Sync(t)
		k.from, k.to = "nothing", "nothing"
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		bell := make(chan struct{}, 100) // more rings than this test causes
		done := make(chan error, 1)
		go func() { done <- d.Watch(ctx, func() { bell <- struct{}{} }) }()
		for changed := false; !changed; {
			select {
			case <-bell:
			case <-ctx.Done():
				t.Fatal("no audit found it")
			}
			changed, _ = d.Changed(t.Context())
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("watch: %v", err)
		}
		if drift := bed.Load(t); len(drift) != 1 || !strings.Contains(d.KeyString(drift[0].Key), "chain nat KUBE-SVC-") {
			t.Errorf("drift is %v", drift)
		}
		bed.Sync(t)
		if w.audits[true] == 0 {
			t.Error("the audit was not counted")
		}
		if saved := ns.save(t); strings.Contains(saved, ":8088") {
			t.Error("not repaired")
		}
	})
}

// lacking is a kernel without one match.
type lacking struct {
	iptables.Kernel
	match string
}

func (l *lacking) Restore(ctx context.Context, r iptables.Restore) (iptables.Stamp, error) {
	if bytes.Contains(r.Input, []byte(l.match)) {
		return iptables.Stamp{}, &iptables.RestoreError{Program: "iptables-legacy-restore", Code: 1, Commit: true, Lines: []int{9}, Message: "iptables-restore: line 9 failed"}
	}
	return l.Kernel.Restore(ctx, r)
}

// TestProbeNamesWhatIsMissing, and goes on without what it can do without.
func TestProbeNamesWhatIsMissing(t *testing.T) {
	eachBackend(t, func(t *testing.T, b iptables.Backend) {
		ns := ownNetns(t, b)
		_, err := New(Params{Kernel: &lacking{ns.Conn, "-m statistic"}}).Probe(t.Context())
		if !errors.Is(err, dataplane.ErrUnsupported) || !strings.Contains(err.Error(), "the kernel lacks the match statistic (CONFIG_NETFILTER_XT_MATCH_STATISTIC)") {
			t.Fatalf("probe says %v", err)
		}
		caps, err := New(Params{Kernel: &lacking{ns.Conn, "-m cluster"}}).Probe(t.Context())
		if err != nil || len(caps.Families) != 2 || len(caps.Notes) != 1 {
			t.Errorf("without cluster: %+v, %v", caps, err)
		}
		if saved := ns.save(t); strings.Contains(saved, "KUBE-") {
			t.Errorf("left behind: %s", saved)
		}
	})
}

// TestProbeWithoutTheProgramsOfOneFamily: images without ip6tables are served IPv4, and the
// note names the program. What kube-proxy left of IPv4 is found and removed.
func TestProbeWithoutTheProgramsOfOneFamily(t *testing.T) {
	only4, err := exec.LookPath("iptables-legacy-restore")
	if err != nil {
		t.Fatal(err)
	}
	ns := ownNetns(t, iptables.Legacy)
	bin := t.TempDir()
	for _, name := range []string{"iptables-legacy", "iptables-legacy-save", "iptables-legacy-restore"} {
		if err := os.Symlink(only4, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	caps, err := New(Params{Kernel: ns.Conn}).Probe(t.Context())
	if err != nil || !slices.Equal(caps.Families, []model.Family{model.IPv4}) || !strings.Contains(strings.Join(caps.Notes, "\n"), `IPv6 is not served: iptables: not supported here: program not installed: exec: "ip6tables-legacy-restore": executable file not found in $PATH`) ||
		strings.Contains(strings.Join(caps.Notes, ""), "\n") {
		t.Errorf("probe: %+v, %v", caps, err)
	}
	chains := "*nat\n:KUBE-MARK-DROP - [0:0]\nCOMMIT\n"
	if _, err := ns.Conn.Restore(t.Context(), iptables.Restore{Family: iptables.IPv4, Input: []byte(chains), Commits: 1}); err != nil {
		t.Fatal(err)
	}
	if n, err := Leftovers(t.Context(), ns.Conn, KubeProxys); n != 1 || !errors.Is(err, iptables.ErrNoProgram) {
		t.Errorf("kube-proxy has left %d chains of IPv4: %v", n, err)
	}
	if err := RemoveLeftovers(t.Context(), ns.Conn, KubeProxys); err != nil {
		t.Error(err)
	}
	if n, _ := Leftovers(t.Context(), ns.Conn, KubeProxys); n != 0 {
		t.Errorf("%d chains of IPv4 are left", n)
	}
}

// TestKilledProbe: a passing failure says nothing of the kernel, and what a killed
// probe left is found by the next Load.
func TestKilledProbe(t *testing.T) {
	k := iptables.NewFake()
	killed := iptables.Fault{Err: errors.New("signal: killed, says the test"), After: true}
	n := 0
	d := New(Params{Kernel: &iptables.Faulty{Kernel: k, OnRestore: func(iptables.Restore) iptables.Fault {
		if n++; n%2 == 1 {
			return killed
		}
		return iptables.Fault{}
	}}})
	if caps, err := d.Probe(t.Context()); err != nil || len(caps.Notes) > 0 {
		t.Errorf("probe: %+v, %v", caps, err)
	}
	foreign(t, k, "*nat", ":"+probeChain+" - [0:0]", "COMMIT")
	bed := dataplanetest.NewBed(New(Params{Kernel: k}), dataplanetest.View())
	bed.Load(t)
	bed.Sync(t)
	err := k.Save(t.Context(), iptables.IPv4, "nat", func(line []byte) error {
		if bytes.Contains(line, []byte(probeChain)) {
			t.Errorf("left behind: %s", line)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestForeignWritesWhenReadingIsDear: with nothing to spend, Apply writes on over
// others' changes and says that it must look; a flush is still noticed at once.
func TestForeignWritesWhenReadingIsDear(t *testing.T) {
	eachBackend(t, func(t *testing.T, b iptables.Backend) {
		ns := ownNetns(t, b)
		d := New(Params{Kernel: ns.Conn})
		bed := builtOn(t, d)
		d.credit.spend(time.Now(), time.Hour)
		touch(t, ns)
		if changed, err := d.Changed(t.Context()); changed || err != nil {
			t.Errorf("Changed says %v, %v for a stranger's rule", changed, err)
		}
		bed.Sync(t)
		if !d.unsure.Load() {
			t.Error("it forgot to look later")
		}
		ns.sh(t, "$IPT -t nat -F KUBE-SERVICES; $IPT -t nat -F")
		if changed, err := d.Changed(t.Context()); !changed || err != nil {
			t.Errorf("Changed says %v, %v after a flush", changed, err)
		}
	})
}

// TestStrangerBetweenParts: somebody writes between two runs of one batch. All of it goes in, what is there is
// read soon, and nothing of ours is taken for his doing.
func TestStrangerBetweenParts(t *testing.T) {
	for name, want := range map[string][]model.Frontend{
		"one for each family": {dataplanetest.ClusterIP(model.IPv4, 4000, 2), dataplanetest.ClusterIP(model.IPv6, 4000, 2)},
		"both for one":        {dataplanetest.ClusterIP(model.IPv4, 4000, partRules), dataplanetest.ClusterIP(model.IPv4, 4001, partRules)},
	} {
		t.Run(name, func(t *testing.T) {
			fake := iptables.NewFake()
			k := &iptables.Faulty{Kernel: fake}
			d := New(Params{Kernel: k})
			bed := builtOn(t, d)
			bed.Sync(t)
			bed.Want(dataplanetest.Service(4000), want...)
			runs := 0
			k.OnRestore = func(iptables.Restore) iptables.Fault {
				if runs++; runs == 2 {
					foreign(t, fake, "*nat", "-A INPUT -p tcp -j RETURN", "COMMIT")
				}
				return iptables.Fault{}
			}
			if _, err := bed.Apply(t.Context(), bed.Pending()); err != nil || runs < 3 {
				t.Fatalf("%d runs, %v", runs, err)
			}
			if changed, err := d.Changed(t.Context()); !changed || err != nil {
				t.Errorf("Changed says %t, %v", changed, err)
			}
			if drift := bed.Load(t); len(drift) > 0 {
				t.Errorf("%d objects drifted, such as %s", len(drift), d.KeyString(drift[0].Key))
			}
		})
	}
}
