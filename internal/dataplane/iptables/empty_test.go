package iptables

import (
	"context"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

const emptyBucket = "KUBE-T-AAAA"

// TestEmptyBucket: a bucket without rules is told of, so that it goes, unless a line leads to it, or it may be that somebody
// has taken it away since it was named: then its rules were not there to be read.
func TestEmptyBucket(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	for name, c := range map[string]struct {
		still func() bool
		leads bool
		told  bool
	}{
		"nobody can write":       {nil, false, true},
		"nobody has written":     {yes, false, true},
		"somebody has written":   {no, false, false},
		"a line leads to it":     {yes, true, false},
		"a line leads elsewhere": {yes, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			told := false
			l := newLoader(scan{digests: true, still: c.still, emit: func(k dataplane.Key, value string) {
				told = told || k.Kind == kindBucket && value == "empty"
			}}, model.IPv4, nat)
			to := "KUBE-T-BBBB"
			if c.leads {
				to = emptyBucket
			}
			for _, line := range []string{":" + emptyBucket + " - [0:0]", ":" + servicesChain + " - [0:0]", "-A " + servicesChain + " -d 10.0.0.0/8 -g " + to} {
				if err := l.read([]byte(line)); err != nil {
					t.Fatal(err)
				}
			}
			if l.end(); told != c.told {
				t.Errorf("it is told of: %v", told)
			}
		})
	}
}

// moving is a Kernel in which somebody writes beside each reading.
type moving struct {
	iptables.Kernel
	moves bool
	steps uint32
}

func (m *moving) Stamp(ctx context.Context) (iptables.Stamp, error) {
	s, err := m.Kernel.Stamp(ctx)
	if m.moves {
		m.steps++
		s.Generation += m.steps
	}
	return s, err
}

// TestEmptyBucketOfASurvey: a Survey asks the kernel whether somebody has written.
func TestEmptyBucketOfASurvey(t *testing.T) {
	k := &moving{Kernel: iptables.NewFake()}
	d := New(Params{Kernel: k})
	bed := dataplanetest.NewBed(d, dataplanetest.View())
	bed.Load(t)
	bed.Base()
	bed.Sync(t)
	foreign(t, k, "*nat", ":"+emptyBucket+" - [0:0]", "COMMIT")
	for _, k.moves = range []bool{false, true} {
		told := false
		err := d.Survey(t.Context(), func(k dataplane.Key, value string) { told = told || k.Kind == kindBucket && value == "empty" })
		if err != nil || told == k.moves {
			t.Errorf("while somebody writes (%v) the empty bucket is told of: %v, %v", k.moves, told, err)
		}
	}
}
