package ipvs

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/model"
)

// routed is a Kernel whose real servers all get their packets in another way than ours.
type routed struct{ ipvs.Kernel }

func (r routed) All(ctx context.Context, want ipvs.Wanted, take func(*ipvs.Virtual, []ipvs.Real) error) error {
	return r.Kernel.All(ctx, want, func(v *ipvs.Virtual, reals []ipvs.Real) error {
		for i := range reals {
			reals[i].Method = 3
		}
		return take(v, reals)
	})
}

// TestReadsWhatOthersLeft: a virtual server of IPv6 at an address of the device is read though our account has nothing, and a real server of
// another method is told from ours. A reading that others disturb is one to be done again.
func TestReadsWhatOthersLeft(t *testing.T) {
	w := newWorld(t, Params{})
	vip := ipvs.VirtualKey{Addr: netip.MustParseAddr("fd00::7"), Protocol: 6, Port: 80}
	at := netip.MustParseAddrPort("[fd00::8]:8080")
	ctx := t.Context()
	if err := errors.Join(w.ipvs.MakeDevice(ctx), w.ipvs.Add(ctx, vip.Addr), w.ipvs.PutVirtual(ctx, ipvs.Virtual{VirtualKey: vip, Scheduler: "rr"}),
		w.ipvs.PutReal(ctx, vip, ipvs.Real{At: at, Weight: 7})); err != nil {
		t.Fatal(err)
	}
	id := virtualID(vip)
	for method, by := range map[string]ipvs.Kernel{present: w.ipvs, "another method": routed{w.ipvs}} {
		w.d.p.Beside = Sockets{w.rules, by, w.ipvs}
		got := map[dataplane.Key]string{}
		err := w.d.Survey(ctx, func(k dataplane.Key, value string) { got[k] = value })
		for kind, want := range map[dataplane.Kind]string{kindVirtual: "rr 0 0", kindReal: method, kindWeight: "7"} {
			k := dataplane.Key{Kind: kind, Family: model.IPv6, ID: id}
			if kind != kindVirtual {
				k.ID = realID(id, at)
			}
			if err != nil || got[k] != want {
				t.Errorf("%s: %q, %v; want %q", w.d.KeyString(k), got[k], err, want)
			}
		}
	}
	w.d.p.Beside = Sockets{w.rules, &reading{Kernel: w.ipvs, cannot: ipvs.ErrInterrupted}, w.ipvs}
	if err := w.d.Survey(ctx, func(dataplane.Key, string) {}); !errors.Is(err, dataplane.ErrInterrupted) {
		t.Errorf("disturbed: %v", err)
	}
}
