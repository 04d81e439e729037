package ipvs

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// meddling is a Wire that runs another program's changes at the begin of each read.
type meddling struct {
	netlink.Wire
	meddle func()
}

func (m meddling) Receive(b []byte, wait bool) (int, error) {
	m.meddle()
	return m.Wire.Receive(b, wait)
}

// TestKernelChurn: while others are added and deleted between any two steps of a read, a permanent object is reported once. By options
// that holds regardless of the rate of changes; by netlink it holds in a quiet moment, and without one there is an error. Of many real
// servers the kernel lists the newest first, so the deleted ones are in front.
func TestKernelChurn(t *testing.T) {
	const endless = 1 << 30
	for _, c := range []struct {
		name, vip string
		options   bool
		changes   int // and then it is quiet
		err       error
	}{
		{"options", "10.96.0.0", true, endless, nil},
		{"netlink", "10.96.0.0", false, 6, nil},
		{"netlink of IPv6", "fd00:96::", false, 6, nil},
		{"netlink without an end", "10.96.0.0", false, endless, ErrInterrupted},
		{"netlink of IPv6 without an end", "fd00:96::", false, endless, ErrInterrupted},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRoom(t)
			f := newChurn(t, r, netip.MustParseAddr(c.vip))
			reader := r.open(t, func(w netlink.Wire) netlink.Wire { return meddling{w, f.next} })
			reader.old.ask = func(option uintptr, buf []byte) error { f.next(); return reader.old.getOption(option, buf) }
			if !c.options {
				defer func(old *options) { reader.old = old }(reader.old)
				reader.old = nil
			}
			for range 3 {
				f.left, f.changes = c.changes, 0
				got, err := everything(t, reader, Wanted{OnlyIPv4: c.options})
				if f.changes == 0 {
					t.Fatal("nothing came or went")
				}
				if !errors.Is(err, c.err) {
					t.Errorf("after %d changes: %v, want %v", f.changes, err, c.err)
				} else if err == nil {
					f.check(t, got)
				}
			}
		})
	}
}

// churn is a virtual server with many real ones, next to many others. Most are permanent; the temporary ones are newer.
type churn struct {
	t       *testing.T
	r       *room
	base    netip.Addr
	chance  *rand.Rand
	left    int // how often something comes or goes still
	changes int // how often it did
}

const (
	standing = 250 // real servers, and virtual ones: more than go into a datagram
	guests   = 40
)

func newChurn(t *testing.T, r *room, base netip.Addr) *churn {
	f := &churn{t: t, r: r, base: base, chance: rand.New(rand.NewPCG(1, 2)), left: 1}
	for i := range standing {
		f.virtual(i, true)
		f.real(i, true)
	}
	f.next()
	return f
}

// at is the base address, and a number.
func (f *churn) at(subnet byte, n int) netip.Addr {
	b := f.base.AsSlice()
	b[len(b)-3], b[len(b)-2], b[len(b)-1] = subnet, byte(n>>8), byte(n)
	a, _ := netip.AddrFromSlice(b)
	return a
}

func (f *churn) key(n int) VirtualKey { return VirtualKey{f.at(0, n+1), unix.IPPROTO_TCP, 80} }

func (f *churn) virtual(n int, there bool) {
	err := f.r.c.DelVirtual(f.t.Context(), f.key(n))
	if there {
		err = f.r.c.PutVirtual(f.t.Context(), Virtual{VirtualKey: f.key(n), Scheduler: "rr"})
	}
	if err != nil {
		f.t.Error(err)
	}
}

// real makes or removes a real server of the first virtual one.
func (f *churn) real(n int, there bool) {
	to := netip.AddrPortFrom(f.at(1, n+1), 80)
	err := f.r.c.DelReal(f.t.Context(), f.key(0), to)
	if there {
		err = f.r.c.PutReal(f.t.Context(), f.key(0), Real{At: to, Weight: 1})
	}
	if err != nil {
		f.t.Error(err)
	}
}

// next has some come and some go.
func (f *churn) next() {
	if f.left == 0 {
		return
	}
	f.left--
	f.changes++
	for i := range guests {
		if f.chance.IntN(2) == 0 {
			there := f.chance.IntN(2) == 0
			f.virtual(standing+i, there)
			f.real(standing+i, there)
		}
	}
}

func (f *churn) check(t *testing.T, got pools) {
	t.Helper()
	missing := 0
	for i := range standing {
		if _, there := got[f.key(i)]; !there {
			missing++
		}
	}
	reals := 0
	for i := range standing {
		if _, there := got[f.key(0)].reals[netip.AddrPortFrom(f.at(1, i+1), 80)]; !there {
			reals++
		}
	}
	if missing > 0 || reals > 0 {
		t.Errorf("of %d virtual servers that stood all the time %d are missing, of as many real servers %d", standing, missing, reals)
	}
}
