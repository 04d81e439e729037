package nftables

import (
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/test/patience"
)

// kernels runs a test on the model and on the real thing.
func kernels(t *testing.T, test func(t *testing.T, k nft.Kernel)) {
	t.Run("model", func(t *testing.T) { test(t, nft.NewFake()) })
	t.Run("kernel", func(t *testing.T) { test(t, ownNetns(t)) })
}

func built(t *testing.T, k nft.Kernel, families ...model.Family) *dataplanetest.Bed {
	t.Helper()
	b := dataplanetest.NewBed(New(Params{Kernel: k, Families: families}), dataplanetest.View())
	b.Load(t)
	if len(families) == 0 {
		families = bothFamilies[:]
	}
	b.WantAll(dataplanetest.Catalogue(families))
	b.Sync(t)
	return b
}

func TestTableOfSomebodyElseIsLeftAlone(t *testing.T) {
	for name, mark := range map[string][]byte{"no mark": nil, "another mark": nft.Comment("my own table")} {
		t.Run(name, func(t *testing.T) {
			kernels(t, func(t *testing.T, k nft.Kernel) {
				ref := tableRef(model.IPv6)
				dataplanetest.Commit(t, k, func(b *nft.Batch) {
					b.NewTable(ref, mark)
					b.NewChain(nft.ChainSpec{Ref: ref.Chain("precious")})
				})
				d := New(Params{Kernel: k})
				err := d.Load(t.Context(), func(dataplane.Key, string) {})
				if !errors.Is(err, dataplane.ErrNotOurs) || !strings.Contains(err.Error(), "nft delete table ip6 fairlead") {
					t.Errorf("load says %v", err)
				}
				if err := d.Cleanup(t.Context()); !errors.Is(err, dataplane.ErrNotOurs) {
					t.Errorf("clean-up says %v", err)
				}
				if chains, err := k.Chains(t.Context(), ref); err != nil || len(chains) != 1 {
					t.Errorf("the table now has %d chains, %v", len(chains), err)
				}
			})
		})
	}
}

func TestTableOwnedByARunningProgram(t *testing.T) {
	ns := ownNetns(t)
	cmd := exec.Command("nft", "-i") // owns the table as long as it runs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Wait()
	}()
	if _, err := io.WriteString(in, "add table ip fairlead { flags owner; comment \""+markText+tableValue+"\"; }\n"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience.Of(30 * time.Second)); ; time.Sleep(10 * time.Millisecond) { // bounded poll
		tables, err := ns.Tables(t.Context())
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("no owned table came up: %v", err)
		}
		if len(tables) > 0 {
			break
		}
	}
	err = New(Params{Kernel: ns}).Load(t.Context(), func(dataplane.Key, string) {})
	if !errors.Is(err, dataplane.ErrNotOurs) || !strings.Contains(err.Error(), "running program") {
		t.Errorf("load says %v", err)
	}
}

func TestFamilyThatIsNotServedAnyMoreIsRemoved(t *testing.T) {
	kernels(t, func(t *testing.T, k nft.Kernel) {
		built(t, k)
		built(t, k, model.IPv4)
		tables, err := k.Tables(t.Context())
		if err != nil || len(tables) != 1 || tables[0].Ref.Family != nft.IPv4 {
			t.Errorf("tables are %v, %v", tables, err)
		}
	})
}

func TestDormantTableIsBuiltAnew(t *testing.T) {
	ns := ownNetns(t)
	b := built(t, ns)
	ns.nft(t, "add", "table", "ip", "fairlead", "{ flags dormant; }")
	if drift := b.Load(t); len(drift) == 0 {
		t.Fatal("a dormant table passes for a live one")
	}
	b.Sync(t)
	if out := ns.nft(t, "list", "tables"); strings.Contains(out, "dormant") {
		t.Error(out)
	}
	if out := ns.nft(t, "list", "table", "ip", "fairlead"); strings.Contains(out, "dormant") || !strings.Contains(out, "10.96.0.1 . tcp . 80") {
		t.Errorf("still dormant, or empty: %.300s", out)
	}
}

func TestRulesetFlushed(t *testing.T) {
	ns := ownNetns(t)
	b := built(t, ns)
	want := dataplanetest.Snapshot(t, New(Params{Kernel: ns}))
	ns.nft(t, "flush", "ruleset")
	b.Load(t)
	b.Sync(t)
	dataplanetest.Same(t, dataplanetest.Snapshot(t, New(Params{Kernel: ns})), want, func(string) bool { return false })
}

func TestProbeNamesWhatIsMissing(t *testing.T) {
	lacks := func(errno unix.Errno, from nft.Family, tag int) *nft.Faulty {
		k := &nft.Faulty{Kernel: nft.NewFake()}
		k.OnCommit = func(b *nft.Batch) nft.Fault {
			var p probe
			p.b, p.f, p.l = &nft.Batch{}, model.IPv4, langOf(model.IPv4)
			p.feature("", "")
			p.sets()
			p.chains()
			at := len(p.features) + tag
			if from == nft.IPv6 {
				from = nft.IPv4 // let the first family pass
				return nft.Fault{}
			}
			return nft.Fault{Err: &nft.BatchError{Errno: errno, Tags: []int{at}, Errors: []nft.OpError{{Errno: errno, Tags: []int{at}}}}}
		}
		return k
	}
	t.Run("no fib in either family", func(t *testing.T) {
		_, err := New(Params{Kernel: lacks(unix.ENOENT, nft.IPv4, 3)}).Probe(t.Context())
		if !errors.Is(err, dataplane.ErrUnsupported) || !strings.Contains(err.Error(), "CONFIG_NFT_FIB_IPV4") {
			t.Errorf("probe says %v", err)
		}
	})
	t.Run("no IPv6", func(t *testing.T) {
		d := New(Params{Kernel: lacks(unix.EOPNOTSUPP, nft.IPv6, 4)})
		caps, err := d.Probe(t.Context())
		if err != nil || len(caps.Families) != 1 || len(caps.Notes) != 1 || !strings.Contains(caps.Notes[0], "dnat") {
			t.Fatalf("probe says %v, %v", caps, err)
		}
		d.Base(dataplanetest.View(), func(o dataplane.Object) {
			if o.Key.Family != model.IPv4 {
				t.Fatalf("renders %s all the same", d.KeyString(o.Key))
			}
		})
	})
	t.Run("no right", func(t *testing.T) {
		_, err := New(Params{Kernel: lacks(unix.EPERM, nft.IPv4, 0)}).Probe(t.Context())
		if !errors.Is(err, dataplane.ErrUnsupported) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
			t.Errorf("probe says %v", err)
		}
	})
	t.Run("busy", func(t *testing.T) {
		_, err := New(Params{Kernel: lacks(unix.ENOBUFS, nft.IPv4, 0)}).Probe(t.Context())
		if err == nil || errors.Is(err, dataplane.ErrUnsupported) {
			t.Errorf("a passing failure reads %v", err)
		}
	})
}

func TestCleanupWithoutNfTables(t *testing.T) {
	for errno, fails := range map[unix.Errno]bool{unix.EINVAL: false, unix.EOPNOTSUPP: false, unix.EPERM: true} {
		k := &nft.Faulty{Kernel: nft.NewFake(), OnRead: func(string) error { return errno }}
		if err := New(Params{Kernel: k}).Cleanup(t.Context()); (err != nil) != fails {
			t.Errorf("%v: clean-up says %v", errno, err)
		}
	}
}

func TestProbeLeavesNoTrace(t *testing.T) {
	ns := ownNetns(t)
	caps, err := New(Params{Kernel: ns}).Probe(t.Context())
	if err != nil || len(caps.Families) != 2 {
		t.Fatalf("probe: %v, %v", caps, err)
	}
	if tables, err := ns.Tables(t.Context()); err != nil || len(tables) > 0 {
		t.Errorf("left behind: %v, %v", tables, err)
	}
}

// A full set that cannot grow causes a rebuild, which replaces it by a larger one in one
// transaction.
func TestTableGrows(t *testing.T) {
	ns := ownNetns(t)
	b := built(t, ns, model.IPv4)
	fixSizes(b)
	for i := range 7_000 {
		b.Want(dataplanetest.Service(10_000+i), benchFrontend(i, 1))
	}
	var full *dataplane.RebuildError
	if _, err := b.Apply(t.Context(), b.Pending()); !errors.As(err, &full) {
		t.Fatalf("a full set reads %v", err)
	}
	b.Rebuild = full.Families
	b.Sync(t)
	if drift := b.Load(t); len(drift)+len(b.Pending()) > 0 {
		t.Errorf("%d objects differ, %d pending", len(drift), len(b.Pending()))
	}
	restarted := dataplanetest.NewBed(New(Params{Kernel: ns, Families: []model.Family{model.IPv4}}), b.View)
	restarted.Load(t)
	if n := len(restarted.Pending()); n < 7_000 {
		t.Errorf("a restarted driver sees only %d objects in the larger table", n)
	}
	out := ns.nft(t, "list", "map", "ip", "fairlead", "services")
	if !strings.Contains(out, "size 12288") {
		t.Errorf("services did not grow: %.200s", out)
	}
}

// If the kernel supports it, a full set grows without a rebuild: a map of verdicts, and
// the shards of a map of endpoints.
func TestSetsGrowInTheirPlace(t *testing.T) {
	ns := ownNetns(t)
	b := built(t, ns, model.IPv4)
	for i := range 7_000 {
		b.Want(dataplanetest.Service(10_000+i), benchFrontend(i, 8))
	}
	_, err := b.Apply(t.Context(), b.Pending())
	if b.Driver.(*Driver).sizes.fixed {
		t.Skip("this kernel raises no limit") // before 6.5
	}
	if err != nil {
		t.Fatal(err)
	}
	if drift := b.Load(t); len(drift)+len(b.Pending()) > 0 {
		t.Errorf("%d objects differ, %d pending", len(drift), len(b.Pending()))
	}
	for name, size := range map[string]string{"services": "size 12288", "eps-0": "size 6144", "eps-f": "size 6144"} {
		if out := ns.nft(t, "list", "map", "ip", "fairlead", name); !strings.Contains(out, size) {
			t.Errorf("%s did not grow: %.200s", name, out)
		}
	}
}

// A first build comes in chunks; its tables have the right size from the start.
func TestFirstBuildFits(t *testing.T) {
	ns := ownNetns(t)
	b := dataplanetest.NewBed(New(Params{Kernel: ns, Families: []model.Family{model.IPv4}}), dataplanetest.View())
	b.Load(t)
	b.Base()
	for i := range 8_000 {
		b.Want(dataplanetest.Service(i), benchFrontend(i, 1))
	}
	if err := applyChunks(t, b); err != nil {
		t.Fatal(err)
	}
}
