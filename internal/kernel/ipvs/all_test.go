package ipvs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// room is a network namespace with IPVS.
type room struct {
	ns *netnstest.Namespace
	c  *Conn // who writes
	n  int   // marks in use
}

func newRoom(t *testing.T) *room {
	t.Helper()
	r := &room{ns: netnstest.Enter(t)}
	// Without any address there is no table of local ones, and IPVS takes every address for a broadcast.
	if err := r.ns.Do(func() error { return exec.Command("ip", "link", "set", "lo", "up").Run() }); err != nil {
		t.Fatal(err)
	}
	r.c = r.open(t, nil)
	return r
}

func (r *room) open(t *testing.T, wrap func(netlink.Wire) netlink.Wire) *Conn {
	t.Helper()
	c, err := Open(Config{NetNS: r.ns.FD(), Wrap: wrap})
	if errors.Is(err, ErrNoIPVS) {
		t.Skip("needs a kernel with IPVS: test/vm runs this test under two") // test/vm/tests.txt has it run under kernels that do
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if c.old == nil {
		t.Fatal("there are no options")
	}
	return c
}

// put makes a real server that is handed packets in another way, or limited, which we never do.
func (r *room) put(t *testing.T, of VirtualKey, to Real) {
	t.Helper()
	err := r.c.put(t.Context(), cmdNewDest, cmdSetDest, func(m *message) {
		m.of(of)
		end := m.nest(attrDest)
		m.place(destAddr, destPort, to.At)
		m.u16(destFamily, family(to.At.Addr()))
		m.u32(destMethod, to.Method)
		m.u32(destWeight, to.Weight)
		m.u32(destUpper, map[bool]uint32{true: 1000}[to.Limited])
		m.u32(destLower, map[bool]uint32{true: 10}[to.Limited])
		end()
	})
	if err != nil {
		t.Fatalf("put %+v of %s: %v", to, of, err)
	}
}

// widen has persistence of a virtual server take clients of one network for one client, which we never do.
func (r *room) widen(t *testing.T, v Virtual) {
	t.Helper()
	err := r.c.do(t.Context(), cmdSetService, func(m *message) {
		end := m.nest(attrService)
		m.key(v.VirtualKey)
		m.attr(svcSched, append([]byte(v.Scheduler), 0)...)
		m.attr(svcFlags, byte(v.Flags), 0, 0, 0, 0xff, 0xff, 0xff, 0xff)
		m.u32(svcTimeout, uint32(v.Timeout/time.Second))
		m.u32(svcNetmask, map[bool]uint32{true: 0xffff, false: 64}[v.Addr.Is4()])
		end()
	})
	if err != nil {
		t.Fatalf("widen %s: %v", v.VirtualKey, err)
	}
}

// mark makes a virtual server that is found by a mark, with a real server.
func (r *room) mark(t *testing.T, fam uint16, to netip.AddrPort) {
	t.Helper()
	r.n++
	key := func(m *message) func() {
		end := m.nest(attrService)
		m.u16(svcFamily, fam)
		m.u32(svcMark, uint32(r.n))
		return end
	}
	err := r.c.do(t.Context(), cmdNewService, func(m *message) {
		end := key(m)
		m.attr(svcSched, 'r', 'r', 0)
		m.attr(svcFlags, 0, 0, 0, 0, 0, 0, 0, 0)
		m.u32(svcTimeout, 0)
		m.u32(svcNetmask, map[uint16]uint32{unix.AF_INET: 0xffffffff, unix.AF_INET6: 128}[fam])
		end()
	})
	if err == nil {
		err = r.c.do(t.Context(), cmdNewDest, func(m *message) { key(m)(); m.real(&Real{At: to, Weight: 1}) })
	}
	if err != nil {
		t.Fatalf("mark %d: %v", r.n, err)
	}
}

// pool is a virtual server with its real ones.
type pool struct {
	virtual Virtual
	reals   map[netip.AddrPort]Real
}

type pools map[VirtualKey]pool

// readAll is everything, and cannot fail.
func readAll(t *testing.T, k Kernel, want Wanted) pools {
	t.Helper()
	out, err := everything(t, k, want)
	if err != nil {
		t.Error(err)
	}
	return out
}

// everything reads; what comes twice is an error.
func everything(t *testing.T, k Kernel, want Wanted) (pools, error) {
	t.Helper()
	out := pools{}
	err := k.All(t.Context(), want, func(v *Virtual, reals []Real) error {
		if _, twice := out[v.VirtualKey]; twice {
			t.Errorf("%s came twice", v.VirtualKey)
		}
		p := pool{*v, map[netip.AddrPort]Real{}}
		for _, r := range reals {
			p.reals[r.At] = r
		}
		if len(p.reals) != len(reals) {
			t.Errorf("%s has %d real servers, of which %d differ", v.VirtualKey, len(reals), len(p.reals))
		}
		out[v.VirtualKey] = p
		return nil
	})
	return out, err
}

// difference says what is not as it should be; "" is nothing.
func difference(got, want pools) string {
	for k, w := range want {
		g, there := got[k]
		if !there || g.virtual != w.virtual {
			return fmt.Sprintf("virtual server %+v (%t), want %+v", g.virtual, there, w.virtual)
		}
		if !maps.Equal(g.reals, w.reals) {
			return fmt.Sprintf("%s has %d real servers %+v, want %d %+v", k, len(g.reals), sample(g.reals), len(w.reals), sample(w.reals))
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("%d virtual servers, want %d", len(got), len(want))
	}
	return ""
}

func sample(of map[netip.AddrPort]Real) []Real {
	out := slices.SortedFunc(maps.Values(of), func(a, b Real) int { return a.At.Compare(b.At) })
	return out[:min(len(out), 20)]
}

// alike holds every way to read to what should be there.
func (r *room) alike(t *testing.T, when string, want pools) {
	t.Helper()
	byNetlink, failing := r.open(t, nil), r.open(t, nil)
	none := byNetlink.old
	byNetlink.old = nil
	defer func() { byNetlink.old = none }()
	broken := false // or the options of real servers alone
	failing.old.ask = func(option uintptr, buf []byte) error {
		if broken || option == optGetDests {
			return unix.ENOPROTOOPT
		}
		return failing.old.getOption(option, buf)
	}
	four := maps.Clone(want)
	maps.DeleteFunc(four, func(k VirtualKey, _ pool) bool { return k.Addr.Is6() })
	check := func(how string, c *Conn) {
		t.Helper()
		if d := difference(readAll(t, c, Wanted{}), want); d != "" {
			t.Errorf("%s, %s: %s", when, how, d)
		}
		if d := difference(readAll(t, c, Wanted{OnlyIPv4: true}), four); d != "" {
			t.Errorf("%s, IPv4 %s: %s", when, how, d)
		}
	}
	check("by options", r.c)
	check("by netlink", byNetlink)
	check("without options for real servers", failing)
	broken = true
	check("with options that fail", failing)
}

// TestKernelPools: all ways to read agree: few and many real servers, the smallest weight and the largest, and objects that the agent never creates.
func TestKernelPools(t *testing.T) {
	r, want := newRoom(t), pools{}
	r.alike(t, "nothing", want)
	serve := func(v Virtual, reals ...Real) {
		p := pool{v, map[netip.AddrPort]Real{}}
		if err := r.c.PutVirtual(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		for _, to := range reals {
			r.put(t, v.VirtualKey, to)
			p.reals[to.At] = to
		}
		want[v.VirtualKey] = p
	}
	for six := range 2 {
		addr := func(n, m int) netip.Addr {
			if six == 0 {
				return netip.AddrFrom4([4]byte{10, byte(n), byte(m >> 8), byte(m)})
			}
			return netip.AddrFrom16([16]byte{0xfd, 0, 0, byte(n), 14: byte(m >> 8), 15: byte(m)})
		}
		many := func(n int) (out []Real) {
			for i := range n {
				out = append(out, Real{At: netip.AddrPortFrom(addr(244, i+1), uint16(8000+i%7)), Weight: uint32(i % 3)})
			}
			return out
		}
		key := func(n int, protocol uint8) VirtualKey { return VirtualKey{addr(96, n), protocol, uint16(80 + n)} }
		for i, n := range []int{0, 1, 10, 200, 1000, 5000} {
			serve(Virtual{VirtualKey: key(i, unix.IPPROTO_TCP), Scheduler: "rr"}, many(n)...)
		}
		serve(Virtual{VirtualKey: key(10, unix.IPPROTO_UDP), Scheduler: "wrr"}, Real{At: many(1)[0].At}, Real{At: many(2)[1].At, Weight: 1<<31 - 1})
		serve(Virtual{VirtualKey: key(11, unix.IPPROTO_SCTP), Scheduler: "rr", Flags: Persistent, Timeout: 3 * time.Hour}, many(3)...)
		serve(Virtual{VirtualKey: key(12, unix.IPPROTO_TCP), Scheduler: "sh", Flags: Sched1 | Sched2}, many(4)...)
		serve(Virtual{VirtualKey: key(13, unix.IPPROTO_TCP), Scheduler: "mh", Flags: Sched1}, many(5)...)
		serve(Virtual{VirtualKey: key(14, unix.IPPROTO_UDP), Scheduler: "rr", Flags: 4}, many(6)...) // one packet
		routed, tunnel := many(9)[7], many(9)[8]
		routed.Method, tunnel.Method = 3, 2
		serve(Virtual{VirtualKey: key(15, unix.IPPROTO_TCP), Scheduler: "rr"}, append(many(2), routed, tunnel)...)
		limited := many(3)
		limited[1].Limited = true
		wide := Virtual{VirtualKey: key(18, unix.IPPROTO_TCP), Scheduler: "rr", Flags: Persistent, Timeout: time.Hour, Wide: true}
		serve(wide, limited...)
		r.widen(t, wide)
		other := netip.MustParseAddrPort([]string{"[fd00::99]:99", "192.0.2.9:99"}[six])
		serve(Virtual{VirtualKey: key(16, unix.IPPROTO_TCP), Scheduler: "rr"}, append(many(3), Real{At: other, Weight: 2, Method: 2})...)
		serve(Virtual{VirtualKey: key(17, unix.IPPROTO_TCP), Scheduler: "rr"}, Real{At: other, Weight: 2, Method: 2})
		r.mark(t, []uint16{unix.AF_INET, unix.AF_INET6}[six], many(1)[0].At)
	}
	r.alike(t, "everything", want)
	for k, p := range want { // what is read only ends when we write
		if p.virtual.Wide {
			p.virtual.Wide = false
			serve(p.virtual)
			for at, to := range p.reals {
				to.Limited = false
				p.reals[at] = to
				if err := r.c.PutReal(t.Context(), k, to); err != nil {
					t.Fatal(err)
				}
			}
			want[k] = p
		}
	}
	r.alike(t, "mended", want)
}

// TestKernelAsksLittle: of IPv4 everything is read without a word over netlink, in one question for each virtual server.
func TestKernelAsksLittle(t *testing.T) {
	const servers, reals = 20, 10
	r := newRoom(t)
	for i := range servers {
		of := VirtualKey{netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), unix.IPPROTO_TCP, 80}
		if err := r.c.PutVirtual(t.Context(), Virtual{VirtualKey: of, Scheduler: "rr"}); err != nil {
			t.Fatal(err)
		}
		for n := range reals {
			r.put(t, of, Real{At: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 0, byte(n + 1)}), 80), Weight: 1})
		}
	}
	questions := 0
	r.c.old.ask = func(option uintptr, buf []byte) error { questions++; return r.c.old.getOption(option, buf) }
	before := r.c.nl.Reserve(1)
	if got := readAll(t, r.c, Wanted{OnlyIPv4: true}); len(got) != servers {
		t.Errorf("%d virtual servers, want %d", len(got), servers)
	}
	if asked := r.c.nl.Reserve(1) - before - 1; asked != 0 || questions != servers+2 {
		t.Errorf("%d questions by netlink and %d by options, want 0 and %d", asked, questions, servers+2)
	}
}

// TestKernelWithoutRights: a reader without the privilege receives an error, not an empty list.
func TestKernelWithoutRights(t *testing.T) {
	r := newRoom(t)
	powerless := func(do func()) {
		t.Helper()
		err := r.ns.Do(func() error { // on a thread that ends with it
			head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var none [2]unix.CapUserData
			if err := unix.Capset(&head, &none[0]); err != nil {
				return err
			}
			do()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	powerless(func() {
		if _, err := Open(Config{}); !errors.Is(err, unix.EPERM) {
			t.Errorf("opened: %v", err)
		}
		for _, want := range []Wanted{{}, {OnlyIPv4: true}} {
			err := r.c.All(context.Background(), want, func(*Virtual, []Real) error { return nil })
			if !errors.Is(err, unix.EPERM) {
				t.Errorf("read with %+v: %v", want, err)
			}
		}
	})
}
