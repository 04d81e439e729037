package iptables

import (
	"context"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// ofSize is a Fake of the legacy backend that holds so many rules, as its stamp tells.
type ofSize struct {
	ofLegacy
	rules uint32
}

func (k *ofSize) Stamp(ctx context.Context) (iptables.Stamp, error) {
	s, err := k.Fake.Stamp(ctx)
	return k.sized(s), err
}

func (k *ofSize) sized(s iptables.Stamp) iptables.Stamp {
	return iptables.Stamp{Tables: [5]iptables.TableStamp{{Entries: k.rules, Places: s.Generation}}}
}

func (k *ofSize) Restore(ctx context.Context, r iptables.Restore) (iptables.Stamp, error) {
	r.Expect = iptables.Stamp{Generation: r.Expect.Tables[0].Places}
	s, err := k.Fake.Restore(ctx, r)
	return k.sized(s), err
}

// TestRecallReadsNothing: what stands between the agent and a full reading is one stamp, and it says whether somebody else has
// written, and whether such a look sees everything.
func TestRecallReadsNothing(t *testing.T) {
	many, few, nft := &ofSize{ofLegacy{iptables.NewFake()}, fewRules}, &ofSize{ofLegacy{iptables.NewFake()}, fewRules - 1}, iptables.NewFake()
	for name, c := range map[string]struct {
		k            iptables.Kernel
		fake         *iptables.Fake
		before       bool // it recalls while all is as it was left
		after, blind bool // it recalls when somebody has written; not everything can be seen so
	}{
		"nft":                   {nft, nft, true, false, false},
		"legacy, many rules":    {many, many.Fake, true, true, true},
		"legacy, but few rules": {few, few.Fake, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			k := iptables.NewCounter(c.k)
			d := New(Params{Kernel: k})
			if _, ok := d.Recall(t.Context()); ok {
				t.Error("it recalls what was never read")
			}
			bed := builtOn(t, d)
			bed.Sync(t)
			counts := k.Counts()
			r, ok := d.Recall(t.Context())
			if ok != c.before || ok && (!r.Holds || r.Read.IsZero() || r.How == "" || (r.Blind != "") != c.blind) {
				t.Errorf("%+v, %t", r, ok)
			}
			foreign(t, c.fake, "*nat", "-A INPUT -p tcp -j RETURN", "COMMIT")
			if r, ok := d.Recall(t.Context()); ok != c.after || r.Holds {
				t.Errorf("somebody wrote, and %+v, %t", r, ok)
			}
			if now := k.Counts(); now.Reads != counts.Reads || now.Stamps != counts.Stamps+2 {
				t.Errorf("two looks cost %d reads and %d stamps", now.Reads-counts.Reads, now.Stamps-counts.Stamps)
			}
			bed.Load(t)
			if r, ok := d.Recall(t.Context()); ok != c.before || ok && !r.Holds {
				t.Errorf("read again, and %+v, %t", r, ok)
			}
		})
	}
}

// TestRecallWhileWriting: in the midst of a write of ours it claims nothing.
func TestRecallWhileWriting(t *testing.T) {
	faulty := &iptables.Faulty{Kernel: iptables.NewFake()}
	d := New(Params{Kernel: faulty})
	bed := builtOn(t, d)
	looked := 0
	faulty.OnRestore = func(iptables.Restore) iptables.Fault {
		looked++
		if r, ok := d.Recall(t.Context()); !ok || r.Holds {
			t.Errorf("%+v, %t", r, ok)
		}
		return iptables.Fault{}
	}
	if bed.Sync(t); looked == 0 {
		t.Error("nothing was written: this test shows nothing")
	}
}

// TestFullReadRunsOneProgramAFamily: with nf_tables the programs read all tables in each run, whichever they are to print.
func TestFullReadRunsOneProgramAFamily(t *testing.T) {
	k := iptables.NewCounter(iptables.NewFake())
	d := New(Params{Kernel: k})
	bed := builtOn(t, d)
	bed.Sync(t)
	nothing := func(dataplane.Key, string) {}
	for name, read := range map[string]func() error{
		"load":    func() error { return d.Load(t.Context(), nothing) },
		"survey":  func() error { return d.Survey(t.Context(), nothing) },
		"digests": func() error { d.readDigests(t.Context()); return nil },
	} {
		before := k.Counts().Reads
		if err := read(); err != nil {
			t.Fatal(err)
		}
		if n := k.Counts().Reads - before; n != uint64(len([]model.Family{model.IPv4, model.IPv6})) {
			t.Errorf("%s: %d reads", name, n)
		}
	}
}
