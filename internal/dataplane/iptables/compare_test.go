package iptables

import (
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// ofLegacy has the programs of the legacy backend.
type ofLegacy struct{ *iptables.Fake }

func (ofLegacy) Backend() iptables.Backend { return iptables.Legacy }

// TestCompareReadsEachTableOnce: with x_tables, however many chains there are to look at, a table is printed once, and one in which
// nothing is asked for is not.
func TestCompareReadsEachTableOnce(t *testing.T) {
	k := iptables.NewCounter(ofLegacy{iptables.NewFake()})
	d := New(Params{Kernel: k})
	bed := builtOn(t, d)
	bed.Sync(t)
	var all, one []dataplane.Object
	for key, value := range bed.Track.Wanted() {
		o := dataplane.Object{Key: key, Value: value}
		if all = append(all, o); key.Kind == kindService && key.Family == model.IPv4 {
			one = []dataplane.Object{o}
		}
	}
	for most, list := range map[uint64][]dataplane.Object{1: one, uint64(2 * len(tables)): all} {
		before := k.Counts().Reads
		if err := d.Compare(t.Context(), list, func(k dataplane.Key, found string) { t.Errorf("%s is %q", d.KeyString(k), found) }); err != nil {
			t.Fatal(err)
		}
		if n := k.Counts().Reads - before; n == 0 || n > most {
			t.Errorf("%d reads for %d objects, want at most %d", n, len(list), most)
		}
	}
}
