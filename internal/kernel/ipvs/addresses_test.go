package ipvs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// TestKernelAddresses: those of the device are listed, with one and with a thousand of each family, and none of another link. While
// others come and go it is a list of one moment, or an error.
func TestKernelAddresses(t *testing.T) {
	const many = 1000 // in some datagrams
	ns := netnstest.Enter(t)
	ip := func(script string) error {
		return ns.Do(func() error {
			cmd := exec.Command("ip", "-batch", "-")
			cmd.Stdin = strings.NewReader(script)
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	dummyLink(t, ns, "other")
	check(t, ip("link set lo up\nlink set other up\naddr add 192.0.2.1 peer 192.0.2.2/32 dev other\n"))
	l, err := OpenLink()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	same := func(want []netip.Addr) {
		t.Helper()
		got, err := l.List(t.Context())
		slices.SortFunc(got, netip.Addr.Compare)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d addresses, %v; want %d", len(got), err, len(want))
		}
	}
	same(nil)
	if err := l.MakeDevice(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := ip("link set " + Device + " up\n"); err != nil { // the kernel then adds a link-local address
		t.Fatal(err)
	}
	same(nil)
	var want []netip.Addr
	var script strings.Builder
	for i := range many {
		for _, a := range []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), netip.AddrFrom16([16]byte{0xfd, 14: byte(i >> 8), 15: byte(i)})} {
			want = append(want, a)
			fmt.Fprintf(&script, "addr add %s dev %s nodad\n", netip.PrefixFrom(a, a.BitLen()), Device)
		}
	}
	script.WriteString("addr add 10.97.0.1 peer 10.97.0.2/32 dev " + Device + "\naddr add 169.254.20.10/32 dev " + Device + "\n")
	want = append(want, netip.MustParseAddr("10.97.0.1"), netip.MustParseAddr("169.254.20.10"))
	slices.SortFunc(want, netip.Addr.Compare)
	if err := ip(script.String()); err != nil {
		t.Fatal(err)
	}
	same(want)
	moved(t, ns, l, same, want)
}

// TestKernelRemoves: an address that another program added with a prefix or a peer is deleted too, and none without them is deleted with it.
func TestKernelRemoves(t *testing.T) {
	ns := netnstest.Enter(t)
	dummyLink(t, ns, "other")
	l, err := OpenLink()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.MakeDevice(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := []netip.Addr{netip.MustParseAddr("10.96.0.8"), netip.MustParseAddr("fd00::8")}
	given := []string{"10.96.0.7/24", "10.96.0.7/16", "10.96.0.8/32", "10.97.0.1 peer 10.97.0.2/32", "10.98.0.1 peer 10.98.0.2/24", "fd00::7/64", "fd00::8/128", "fd01::1 peer fd01::2/128"}
	for _, a := range given {
		args := append(strings.Fields("addr add "+a), "dev", Device)
		if err := ns.Do(func() error { return exec.Command("ip", args...).Run() }); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	for _, a := range []string{"10.96.0.7", "10.97.0.1", "10.98.0.1", "fd00::7", "fd01::1", "192.0.2.1"} {
		for range 2 {
			if err := l.Remove(t.Context(), netip.MustParseAddr(a)); err != nil {
				t.Error(err)
			}
		}
	}
	got, err := l.List(t.Context())
	slices.SortFunc(got, netip.Addr.Compare)
	if err != nil || !slices.Equal(got, left) {
		t.Errorf("%v, %v; want %v", got, err, left)
	}
}

// moved lists while addresses come and go, for a while and without an end.
func moved(t *testing.T, ns *netnstest.Namespace, l *Link, same func([]netip.Addr), want []netip.Addr) {
	chance, left, gone := rand.New(rand.NewPCG(1, 2)), 0, map[int]bool{}
	meddle := func() {
		if left--; left < 0 {
			return
		}
		n := chance.IntN(20)
		verb := map[bool]string{true: "add", false: "del"}[gone[n]]
		gone[n] = !gone[n]
		if err := ns.Do(func() error { return exec.Command("ip", "addr", verb, want[n].String()+"/32", "dev", Device).Run() }); err != nil {
			t.Error(err)
		}
	}
	meddled, err := netlink.Open(netlink.Config{NetNS: ns.FD(), Options: netlink.Options{Protocol: netlink.Route}, Wrap: func(w netlink.Wire) netlink.Wire { return meddling{w, meddle} }})
	if err != nil {
		t.Fatal(err)
	}
	defer func(quiet *netlink.Conn) { l.nl, _ = quiet, meddled.Close() }(l.nl)
	l.nl = meddled
	left = 6
	got, err := l.List(t.Context())
	if left >= 0 || err != nil {
		t.Errorf("in the end quiet: %v, and %d changes to come", err, left)
	}
	slices.SortFunc(got, netip.Addr.Compare)
	same(got) // as without a change
	left = 1 << 30
	if list, err := l.List(t.Context()); !errors.Is(err, ErrInterrupted) {
		t.Errorf("without a quiet moment: %d addresses, %v", len(list), err)
	}
}
