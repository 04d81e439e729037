package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// errDied ends an Apply as a SIGKILL would: between two of its steps.
var errDied = errors.New("killed, says the test")

// death comes after some steps of a batch, whichever kernel they are for.
type death struct{ left int }

func (d *death) step() error {
	if d.left--; d.left < 0 {
		return errDied
	}
	return nil
}

// links counts the steps on the device too.
type links struct {
	*ipvs.Fake
	death *death
}

func (l links) MakeDevice(ctx context.Context) error {
	if err := l.death.step(); err != nil {
		return err
	}
	return l.Fake.MakeDevice(ctx)
}

func (l links) Add(ctx context.Context, a netip.Addr) error {
	if err := l.death.step(); err != nil {
		return err
	}
	return l.Fake.Add(ctx, a)
}

func (l links) Remove(ctx context.Context, a netip.Addr) error {
	if err := l.death.step(); err != nil {
		return err
	}
	return l.Fake.Remove(ctx, a)
}

// TestDiesBetweenAnyTwoSteps: an agent that is killed anywhere in a batch leaves a node that serves what it served before and after. The
// next agent reconciles it to the desired state: nothing is missing, nothing is left, and foreign and owned objects are not confused.
func TestDiesBetweenAnyTwoSteps(t *testing.T) {
	for _, drain := range []time.Duration{0, time.Minute} {
		for steps := 0; dies(t, drain, steps); steps++ {
		}
	}
}

// dies has an agent die after some steps, if there are so many.
func dies(t *testing.T, drain time.Duration, steps int) bool {
	stays := dataplanetest.ClusterIP(model.IPv4, 0, 4)
	goes, comes := dataplanetest.ClusterIP(model.IPv4, 1, 2), dataplanetest.ClusterIP(model.IPv6, 2, 2)
	port := dataplanetest.ClusterIP(model.IPv4, 3, 2) // a NodePort, which is removed: only the account of the Driver knows its virtual servers
	port.Kind, port.Key.Addr, port.Key.Port = model.NodePort, netip.Addr{}, 30_080
	before, after := stays, stays
	before.Backends, after.Backends = stays.Backends[:3], stays.Backends[1:]
	w := newWorld(t, Params{Drain: drain})
	w.Want(stays.Service, before)
	w.Want(goes.Service, goes)
	w.Want(port.Service, port)
	w.Sync(t)

	d := &death{left: steps}
	dying := New(Params{Drain: drain, NFT: &nft.Faulty{Kernel: w.rules, OnCommit: func(*nft.Batch) nft.Fault { return nft.Fault{Err: d.step()} }},
		IPVS: &ipvs.Faulty{Kernel: w.ipvs, OnWrite: func() ipvs.Fault { return ipvs.Fault{Err: d.step()} }}, Addresses: links{w.ipvs, d}})
	want := func(b *dataplanetest.Bed) {
		b.Load(t)
		b.Base()
		b.Want(stays.Service, after)
		b.Want(comes.Service, comes)
	}
	bed := dataplanetest.NewBed(dying, dataplanetest.View())
	want(bed)
	_, err := bed.Apply(t.Context(), bed.Pending())
	when := fmt.Sprintf("drain %s, after %d steps", drain, steps)
	if err != nil && !errors.Is(err, errDied) {
		t.Fatalf("%s: %v", when, err)
	}
	if weights := w.weights(t, stays); weights[1] != 1 || weights[2] != 1 {
		t.Errorf("%s: what stays is not served: %v", when, weights)
	}
	next := dataplanetest.NewBed(New(Params{Drain: drain, NFT: w.rules, IPVS: w.ipvs, Addresses: w.ipvs}), dataplanetest.View())
	want(next)
	next.Sync(t)
	next.Now = next.Now.Add(time.Minute)
	next.Track.Expire(next.Now) // what drained
	next.Sync(t)
	wantExactly(t, w, when, map[*model.Frontend]map[byte]uint32{&after: {1: 1, 2: 1, 3: 1}, &comes: {32: 1, 33: 1}})
	if err == nil && steps < 10 {
		t.Errorf("%s: the batch had no more", when)
	}
	return err != nil
}

// wantExactly holds IPVS and the device to these Frontends, and to nothing more.
func wantExactly(t *testing.T, w *world, when string, want map[*model.Frontend]map[byte]uint32) {
	t.Helper()
	virtuals, err := ipvs.List(t.Context(), w.ipvs, ipvs.Wanted{})
	addrs, err2 := w.ipvs.List(t.Context())
	if err := errors.Join(err, err2); err != nil || len(virtuals) != len(want) || len(addrs) != len(want) {
		t.Errorf("%s: virtual servers %v, addresses %v, %v; want %d", when, virtuals, addrs, err, len(want))
	}
	for f, weights := range want {
		w.wants(t, *f, weights)
	}
}
