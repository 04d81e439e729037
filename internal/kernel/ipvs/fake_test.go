package ipvs

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestKernel holds the model and, where there is IPVS, the kernel to the same answers.
func TestKernel(t *testing.T) {
	t.Run("model", func(t *testing.T) {
		f := NewFake()
		answers(t, f, f)
	})
	t.Run("kernel", func(t *testing.T) {
		k := newRoom(t).c
		links, err := OpenLink()
		if err != nil {
			t.Fatal(err)
		}
		defer links.Close()
		answers(t, k, links)
	})
}

func answers(t *testing.T, k Kernel, at Addresses) {
	t.Helper()
	unknown := Virtual{VirtualKey: VirtualKey{netip.MustParseAddr("10.96.0.1"), unix.IPPROTO_TCP, 80}, Scheduler: "nosuch"}
	if err := k.PutVirtual(t.Context(), unknown); !errors.Is(err, unix.ENOENT) {
		t.Errorf("an unknown scheduler: %v", err)
	}
	for _, vip := range []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:10:96::1")} {
		for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
			servers(t, k, VirtualKey{vip, proto, 80})
		}
		if err := at.Add(t.Context(), vip); !errors.Is(err, unix.ENODEV) {
			t.Errorf("an address without the device: %v", err)
		}
		for range 2 {
			if err := errors.Join(at.MakeDevice(t.Context()), at.Add(t.Context(), vip)); err != nil {
				t.Error(err)
			}
		}
		if list, err := at.List(t.Context()); err != nil || !slices.Equal(list, []netip.Addr{vip}) {
			t.Errorf("addresses: %v, %v", list, err)
		}
		for range 2 {
			if err := errors.Join(at.Remove(t.Context(), vip), at.RemoveDevice(t.Context())); err != nil {
				t.Error(err)
			}
		}
		if has, err := at.HasDevice(t.Context()); has || err != nil {
			t.Errorf("the device is there: %v, %v", has, err)
		}
	}
}

// servers makes, changes and deletes one virtual server.
func servers(t *testing.T, k Kernel, key VirtualKey) {
	t.Helper()
	to := func(n uint8) netip.AddrPort {
		b := key.Addr.AsSlice()
		b[len(b)-1] = n
		a, _ := netip.AddrFromSlice(b)
		return netip.AddrPortFrom(a, 8080)
	}
	wants := func(v []Virtual, r ...Real) {
		t.Helper()
		list, err := List(t.Context(), k, Wanted{})
		if err != nil || !slices.Equal(list, v) {
			t.Errorf("virtual servers %+v, %v; want %+v", list, err, v)
		}
		one, found, err := k.Virtual(t.Context(), key)
		if err != nil || found != (len(v) > 0) || found && one != v[0] {
			t.Errorf("looked up: %+v, %v, %v", one, found, err)
		}
		reals, err := k.Reals(t.Context(), key)
		slices.SortFunc(reals, func(a, b Real) int { return a.At.Compare(b.At) })
		if err != nil || !slices.Equal(reals, r) {
			t.Errorf("real servers %+v, %v; want %+v", reals, err, r)
		}
	}
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	if err := k.PutReal(ctx, key, Real{At: to(9), Weight: 1}); !errors.Is(err, unix.ESRCH) {
		t.Errorf("a real server of none: %v", err)
	}
	wants(nil)
	v := Virtual{VirtualKey: key, Scheduler: "rr"}
	must(k.PutVirtual(ctx, v), k.PutVirtual(ctx, v), k.PutReal(ctx, key, Real{At: to(11)}), k.PutReal(ctx, key, Real{At: to(12), Weight: 3}))
	wants([]Virtual{v}, Real{At: to(11)}, Real{At: to(12), Weight: 3})
	v = Virtual{VirtualKey: key, Scheduler: "mh", Flags: Persistent | Sched1, Timeout: 3 * time.Hour}
	must(k.PutVirtual(ctx, v), k.PutReal(ctx, key, Real{At: to(11), Weight: 7}), k.DelReal(ctx, key, to(12)), k.DelReal(ctx, key, to(12)))
	wants([]Virtual{v}, Real{At: to(11), Weight: 7})
	must(k.DelVirtual(ctx, key), k.DelVirtual(ctx, key), k.DelReal(ctx, key, to(11)), k.SetTimeouts(ctx, Timeouts{TCP: time.Hour}))
	wants(nil)
}
