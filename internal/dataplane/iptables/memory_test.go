package iptables

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// tally counts the rules that a Kernel reads of chains that are ours, of several tables at once.
type tally struct {
	iptables.Kernel
	rules *atomic.Int64
}

func (k tally) Read(ctx context.Context, r iptables.Reading, emit func([]byte) error) error {
	return k.Kernel.Read(ctx, r, func(line []byte) error {
		if chain, _, ok := splitRule(line); ok && !builtIn(string(chain)) {
			k.rules.Add(1)
		}
		return emit(line)
	})
}

// remembering is a driver that has read its rules, beside which others write.
type remembering struct {
	*testing.T
	*netns
	d      *Driver
	bed    *dataplanetest.Bed
	rules  *atomic.Int64
	beside *iptables.Conn // remembers nothing of what d reads
}

func newRemembering(t *testing.T, b iptables.Backend) *remembering {
	t.Helper()
	r := &remembering{T: t, netns: ownNetns(t, b), rules: new(atomic.Int64)}
	r.d = New(Params{Kernel: tally{r.Conn, r.rules}, Counters: r.counters(t)})
	if caps, err := r.d.Probe(t.Context()); err != nil || len(caps.Notes) > 0 {
		t.Fatalf("probe: %q, %v", caps.Notes, err)
	}
	r.beside = r.open(t)
	r.bed = builtOn(t, r.d)
	r.bed.Sync(t)
	return r
}

// survey returns how many rules of our chains were read, and fails unless what is found is
// what a driver finds that remembers nothing.
func (r *remembering) survey() int {
	r.Helper()
	r.rules.Store(0)
	got := surveyed(r.T, r.d)
	read := int(r.rules.Load())
	fresh := New(Params{Kernel: r.beside})
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

// TestRemembersWhatNobodyWrote: only chains are read again that somebody has written.
func TestRemembersWhatNobodyWrote(t *testing.T) {
	eachBackend(t, func(t *testing.T, b iptables.Backend) {
		r := newRemembering(t, b)
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
		touch(t, r.netns)
		if again := r.survey(); again != 0 {
			t.Errorf("%d rules of %d were read after somebody wrote elsewhere", again, whole)
		}
	})
}

// TestRemembersBesideOthers: what a CNI plug-in writes for a pod, and what our own acceleration writes in its table, makes
// no rule of ours be read again; what somebody writes into one of our chains, those of that chain.
func TestRemembersBesideOthers(t *testing.T) {
	r := newRemembering(t, iptables.NFT)
	whole := r.survey()
	k, err := nft.Open(nft.Config{NetNS: r.FD()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	table := nft.TableRef{Family: nft.IPv4, Name: "fairlead-offload"}
	services := table.Set("services")
	commit := func(fill func(*nft.Batch)) {
		var b nft.Batch
		fill(&b)
		if _, err := k.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		does string
		do   func()
		most int
	}{
		{"a pod comes", func() {
			r.sh(t, "$IPT -t nat -N CNI-A; $IPT -t nat -A CNI-A -d 10.1.1.1 -j ACCEPT; $IPT -t nat -A POSTROUTING -s 10.1.1.1 -j CNI-A; $IPT -I FORWARD -s 10.1.1.1 -j ACCEPT")
		}, 0},
		{"it goes", func() {
			r.sh(t, "$IPT -t nat -D POSTROUTING -s 10.1.1.1 -j CNI-A; $IPT -t nat -F CNI-A; $IPT -t nat -X CNI-A")
		}, 0},
		{"acceleration begins", func() {
			commit(func(b *nft.Batch) {
				b.NewTable(table, []byte("layout"))
				b.NewSet(nft.SetSpec{Ref: services, Key: []nft.Part{nft.Addr4}})
			})
		}, 0},
		{"it takes a Service", func() { commit(func(b *nft.Batch) { b.AddElement(services, &nft.Element{Key: []byte{10, 96, 0, 1}}) }) }, 0},
		{"it ends", func() { commit(func(b *nft.Batch) { b.DelTable(table) }) }, 0},
		{"somebody adds a rule to ours", func() { r.sh(t, "$IPT -t nat -I KUBE-POSTROUTING -j RETURN") }, 10},
	} {
		c.do()
		if again := r.survey(); again > c.most || c.most > 0 && again == 0 {
			t.Errorf("%s: %d rules of %d were read", c.does, again, whole)
		}
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
	eachBackend(t, func(t *testing.T, b iptables.Backend) {
		r := newRemembering(t, b)
		whole := r.survey()
		r.d.memory = memory{}
		r.rules.Store(0)
		if drift := r.bed.Load(t); len(drift) > 0 || int(r.rules.Load()) != whole {
			t.Errorf("%d rules of %d were read, %d objects drifted", r.rules.Load(), whole, len(drift))
		}
		if again := r.survey(); again != 0 {
			t.Errorf("%d rules were read after a Load", again)
		}
		r.rules.Store(0)
		if r.bed.Load(t); int(r.rules.Load()) != whole {
			t.Errorf("a second Load read %d rules of %d", r.rules.Load(), whole)
		}
	})
}
