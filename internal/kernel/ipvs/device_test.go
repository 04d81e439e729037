package ipvs

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/test/patience"
)

// TestHas: an address of the device is known as such while it has it, also where another device has it too.
func TestHas(t *testing.T) {
	t.Run("model", func(t *testing.T) { has(t, NewFake(), func(...string) {}) })
	t.Run("kernel", func(t *testing.T) {
		ns := netnstest.Enter(t)
		ip := func(args ...string) {
			t.Helper()
			if err := ns.Do(func() error { return exec.Command("ip", args...).Run() }); err != nil {
				t.Fatalf("ip %v: %v", args, err)
			}
		}
		dummyLink(t, ns, "other")
		links, err := OpenLink()
		if err != nil {
			t.Fatal(err)
		}
		defer links.Close()
		ip("link", "set", "lo", "up")
		ip("link", "set", "other", "up")
		has(t, links, ip)
	})
}

// TestHasNoSource: what goes out by a device that has no address has one of the node's own as its source, however much more
// an address of a Service looks like the destination.
func TestHasNoSource(t *testing.T) {
	ns := netnstest.Enter(t)
	ip := func(args string) string {
		t.Helper()
		var out []byte
		if err := ns.Do(func() (err error) {
			out, err = exec.Command("ip", strings.Fields(args)...).CombinedOutput()
			return err
		}); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
		return string(out)
	}
	dummyLink(t, ns, "to-pod")
	for _, args := range []string{"link add outside type dummy", "link set lo up", "link set to-pod up", "link set outside up",
		"addr add 2001:db8::1/64 dev outside nodad", "route add fd00:10:244::5/128 dev to-pod"} {
		ip(args)
	}
	links, err := OpenLink()
	check(t, err)
	defer links.Close()
	check(t, links.MakeDevice(t.Context()))
	check(t, links.Add(t.Context(), netip.MustParseAddr("fd00:10:244::6")))
	way := ip("-6 route get fd00:10:244::5")
	for end := time.Now().Add(patience.Of(20 * time.Second)); strings.Contains(way, "src fe80") && time.Now().Before(end); way = ip("-6 route get fd00:10:244::5") {
		time.Sleep(10 * time.Millisecond) // the kernel makes an address of IPv6 its own some time after it has been added
	}
	if !strings.Contains(way, "src 2001:db8::1 ") {
		t.Errorf("a pod sees a Service: %s", way)
	}
}

// dummyLink adds a link that leads nowhere, as kube-ipvs0 is one.
func dummyLink(t *testing.T, ns *netnstest.Namespace, name string) {
	t.Helper()
	if ns.Do(func() error { return exec.Command("ip", "link", "add", name, "type", "dummy").Run() }) != nil {
		t.Skip("needs a kernel with dummy links: test/vm runs this test under two") // test/vm/tests.txt has it run there
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func has(t *testing.T, at Addresses, ip func(...string)) {
	for _, vip := range []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:10:96::1")} {
		check := func(when string, want bool) {
			t.Helper()
			if got, err := at.Has(t.Context(), vip); got != want || err != nil {
				t.Errorf("%s, %s: %t, %v", vip, when, got, err)
			}
		}
		check("without the device", false)
		if err := at.MakeDevice(t.Context()); err != nil {
			t.Fatal(err)
		}
		check("before it is added", false)
		if err := at.Add(t.Context(), vip); err != nil {
			t.Fatal(err)
		}
		check("when it is added", true)
		prefix := netip.PrefixFrom(vip, vip.BitLen()).String()
		ip("addr", "add", prefix, "dev", "other")
		check("beside another device that has it", true)
		if err := at.Remove(t.Context(), vip); err != nil {
			t.Fatal(err)
		}
		check("when only another device has it", false)
		if err := at.RemoveDevice(t.Context()); err != nil {
			t.Fatal(err)
		}
		check("when the device is gone", false)
	}
	// The other device's address first, then that of Device: the route to the address uses the other device.
	ip("addr", "add", "10.96.0.2/32", "dev", "other")
	vip := netip.MustParseAddr("10.96.0.2")
	if err := at.MakeDevice(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := at.Add(t.Context(), vip); err != nil {
		t.Fatal(err)
	}
	if got, err := at.Has(t.Context(), vip); !got || err != nil {
		t.Errorf("an address that another device had before: %t, %v", got, err)
	}
}
