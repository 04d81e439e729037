package iptables

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
)

// tally counts the rules that a Kernel reads of chains that are ours.
type tally struct {
	iptables.Kernel
	rules *int
}

func (k tally) Read(ctx context.Context, r iptables.Reading, emit func([]byte) error) error {
	return k.Kernel.Read(ctx, r, func(line []byte) error {
		if chain, _, ok := splitRule(line); ok && !builtIn(string(chain)) {
			*k.rules++
		}
		return emit(line)
	})
}

// remembering is a driver that has read its rules, beside which others write.
type remembering struct {
	*testing.T
	*netns
	d     *Driver
	bed   *dataplanetest.Bed
	rules *int
}

func newRemembering(t *testing.T, b iptables.Backend) *remembering {
	t.Helper()
	r := &remembering{T: t, netns: ownNetns(t, b), rules: new(int)}
	r.d = New(Params{Kernel: tally{r.Conn, r.rules}})
	if caps, err := r.d.Probe(t.Context()); err != nil || len(caps.Notes) > 0 {
		t.Fatalf("probe: %q, %v", caps.Notes, err)
	}
	r.bed = builtOn(t, r.d)
	r.bed.Sync(t)
	return r
}

// survey gives how many rules of our chains were read, and fails unless what is found is
// what a driver finds that remembers nothing.
func (r *remembering) survey() int {
	r.Helper()
	*r.rules = 0
	got, read := surveyed(r.T, r.d), *r.rules
	fresh := New(Params{Kernel: r.Conn})
	fresh.own = r.d.own
	if want := surveyed(r.T, fresh); !maps.Equal(got, want) {
		for k, v := range want {
			if got[k] != v {
				r.Errorf("%s is %q, and %q in memory", r.d.KeyString(k), v, got[k])
			}
		}
		r.Errorf("%d objects are there, and %d in memory", len(want), len(got))
	}
	return read
}

// TestRemembersWhatNobodyWrote: with nf_tables only chains are read again that somebody may
// have written.
func TestRemembersWhatNobodyWrote(t *testing.T) {
	r := newRemembering(t, iptables.NFT)
	whole := r.survey()
	if again := r.survey(); whole < 50 || again != 0 {
		t.Errorf("%d rules were read, then %d", whole, again)
	}
	one := dataplanetest.ClusterIP(r.d.families[0], 4000, 3)
	r.bed.Want(dataplanetest.Service(4000), one)
	r.bed.Sync(t)
	if again := r.survey(); again == 0 || again > 30 {
		t.Errorf("%d rules were read after a change", again)
	}
	r.bed.Want(dataplanetest.Service(4000))
	r.bed.Sync(t)
	r.survey()
	if again := r.survey(); again != 0 {
		t.Errorf("%d rules were read", again)
	}
	r.sh(t, "nft add table ip elsewhere")
	if again := r.survey(); again != whole {
		t.Errorf("%d rules of %d were read after a commit of somebody else's", again, whole)
	}
}

// TestRemembersNothingWrong: whatever others do, before, beside or behind what we write, what
// is found is what is there.
func TestRemembersNothingWrong(t *testing.T) {
	for _, b := range []iptables.Backend{iptables.Legacy, iptables.NFT} {
		t.Run(string(b), func(t *testing.T) {
			r := newRemembering(t, b)
			n := 0
			write := func() { // as we do, whatever others have done
				n++
				foreign(t, r.Conn, "*nat", ":KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]", fmt.Sprintf("-A KUBE-SVC-AAAAAAAAAAAAAAAA -s 10.0.0.%d/32 -j RETURN", n), "COMMIT")
			}
			for _, e := range edits(r.netns) {
				for _, order := range [][]func(){{func() { e.Do(t) }}, {func() { e.Do(t) }, write}, {write, func() { e.Do(t) }}} {
					for _, do := range order {
						do()
					}
					r.survey()
					r.bed.Load(t)
					r.bed.Sync(t)
					r.survey()
				}
			}
		})
	}
}

// TestLoadReadsAll: a Load reads all rules, however little was written. A survey behind it
// need not.
func TestLoadReadsAll(t *testing.T) {
	r := newRemembering(t, iptables.NFT)
	whole := r.survey()
	r.d.memory = memory{}
	*r.rules = 0
	if drift := r.bed.Load(t); len(drift) > 0 || *r.rules != whole {
		t.Errorf("%d rules of %d were read, %d objects drifted", *r.rules, whole, len(drift))
	}
	if again := r.survey(); again != 0 {
		t.Errorf("%d rules were read after a Load", again)
	}
	*r.rules = 0
	if r.bed.Load(t); *r.rules != whole {
		t.Errorf("a second Load read %d rules of %d", *r.rules, whole)
	}
}
