package ipvs

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/model"
)

// routed is a Kernel whose real servers all have another forwarding method than the Driver's.
type routed struct{ ipvs.Kernel }

func (r routed) All(ctx context.Context, want ipvs.Wanted, take func(*ipvs.Virtual, []ipvs.Real) error) error {
	return r.Kernel.All(ctx, want, func(v *ipvs.Virtual, reals []ipvs.Real) error {
		for i := range reals {
			reals[i].Method = 3
		}
		return take(v, reals)
	})
}

// TestReadsWhatOthersLeft: a virtual server of IPv6 at an address of the device is read although the account is empty, and a real server
// with another method is distinguished from the Driver's. A reading during a foreign change is retried.
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

// TestSumOfServers: whatever real servers differ in from those before them, the sum is that of what is reported.
func TestSumOfServers(t *testing.T) {
	vip := ipvs.VirtualKey{Addr: netip.MustParseAddr("10.96.0.1"), Protocol: 6, Port: 80}
	ours := ipvs.Real{Weight: 1}
	for name, list := range map[string][]ipvs.Real{
		"none": {}, "alike": {ours, ours}, "other weights": {ours, {Weight: 7}, {}, ours, {Weight: 300}}, "no weight first": {{}, ours},
		"limits": {ours, {Weight: 1, Limited: true}, ours, {Limited: true}}, "other methods": {ours, {Weight: 1, Method: 3}, ours},
	} {
		reported := dataplane.Total{}
		r := New(Params{}).reader(func(k dataplane.Key, value string) {
			reported.Objects++
			reported.Sum += dataplane.ObjectSum(k, value)
		})
		for i := range list {
			list[i].At = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8080)
		}
		list = append(list, ipvs.Real{At: netip.MustParseAddrPort("[fd00::8]:8080"), Weight: 1}) // a tunnel
		r.server(&ipvs.Virtual{VirtualKey: vip, Scheduler: "rr"}, list)
		if r.total != reported || r.sum != reported.Sum || reported.Objects < 1+len(list) {
			t.Errorf("%s: in sum %+v and %d, one by one %+v", name, r.total, r.sum, reported)
		}
	}
}

// TestLimitsOfOthers: a limit that another program set on an owned real server, and a network that persistence treats as one client, are found
// by every kind of read, and removed without loss of a connection.
func TestLimitsOfOthers(t *testing.T) {
	w := newWorld(t, Params{})
	w.d.p.Look = Look{NFT: w.rules, IPVS: w.ipvs, Addresses: w.ipvs}
	f := dataplanetest.ClusterIP(model.IPv4, 0, 2)
	f.AffinityTimeout = time.Hour
	of := ipvs.VirtualKey{Addr: f.Key.Addr, Protocol: uint8(f.Key.Protocol), Port: f.Key.Port}
	w.Want(f.Service, f)
	w.Sync(t)
	w.ipvs.Connect(of, f.Backends[0].AddrPort(), 5, 0)
	w.ipvs.Spoil(of)
	id := virtualID(of)
	weight := func(i int) dataplane.Object {
		return dataplane.Object{Key: dataplane.Key{Kind: kindWeight, Family: model.IPv4, ID: realID(id, f.Backends[i].AddrPort())}, Value: "1"}
	}
	want := []dataplane.Object{{Key: dataplane.Key{Kind: kindVirtual, Family: model.IPv4, ID: id}, Value: "rr 1 3600"}, weight(0), weight(1)}
	differ := 0
	if err := w.d.Compare(t.Context(), want, func(dataplane.Key, string) { differ++ }); err != nil || differ != 3 {
		t.Errorf("%d differ, %v; want 3", differ, err)
	}
	if changed, err := w.d.Changed(t.Context()); !changed || err != nil {
		t.Errorf("changed: %v, %v", changed, err)
	}
	if drift := w.Load(t); len(drift) != 3 {
		t.Errorf("%v differ, want 3", drift)
	}
	w.Sync(t)
	v, _, err := w.ipvs.Virtual(t.Context(), of)
	reals, err2 := w.ipvs.Reals(t.Context(), of)
	if err != nil || err2 != nil || v.Wide || len(reals) != 2 || reals[0].Limited || reals[1].Limited || reals[0].Active != 5 {
		t.Errorf("mended: %+v, %+v, %v, %v", v, reals, err, err2)
	}
	if drift := w.Load(t); len(drift) != 0 {
		t.Errorf("still %v", drift)
	}
}

// TestTunnelOfOthers: a foreign tunnel to the other family, which the kernel refuses to change into a real server of the Driver, is deleted at
// once and blocks no other operation; the takeover by another mode is not blocked either.
func TestTunnelOfOthers(t *testing.T) {
	w := newWorld(t, Params{Drain: time.Minute})
	f := dataplanetest.ClusterIP(model.IPv4, 0, 2)
	of := ipvs.VirtualKey{Addr: f.Key.Addr, Protocol: uint8(f.Key.Protocol), Port: f.Key.Port}
	tunnel := netip.MustParseAddrPort("[fd00::99]:80")
	w.Want(f.Service, f)
	w.Sync(t)
	w.ipvs.Tunnel(of, tunnel)
	if drift := w.Load(t); len(drift) != 2 {
		t.Errorf("%v differ, want a real server and its weight", drift)
	}
	other := dataplanetest.ClusterIP(model.IPv4, 1, 2)
	w.Want(other.Service, other)
	w.Sync(t)
	if reals, err := w.ipvs.Reals(t.Context(), of); err != nil || len(reals) != 2 {
		t.Errorf("real servers %+v, %v; want our two", reals, err)
	}
	if changed, err := w.d.Changed(t.Context()); changed || err != nil {
		t.Errorf("after the repair: changed %v, %v", changed, err)
	}
	w.wants(t, other, map[byte]uint32{16: 1, 17: 1})
	w.ipvs.Tunnel(of, tunnel)
	if _, err := w.d.Retire(t.Context()); err != nil {
		t.Errorf("retire: %v", err)
	}
}
