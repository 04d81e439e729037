package ipvs

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// FuzzDecode: whatever the kernel's answers hold, they are read without a crash, or are malformed.
func FuzzDecode(f *testing.F) {
	at := netip.MustParseAddrPort("[fd00::1]:80")
	var m message
	m.virtual(&Virtual{VirtualKey: VirtualKey{at.Addr(), 6, 80}, Scheduler: "rr"})
	m.real(&Real{At: at, Weight: 7})
	f.Add([]byte(m))
	f.Add([]byte{})
	f.Add([]byte{4, 0, attrService, 0, 4, 0, attrDest, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := decodeVirtual(b, &names{}); err != nil && v != (Virtual{}) {
			t.Errorf("%+v and %v", v, err)
		}
		if r, err := decodeReal(b, unix.AF_INET); err == nil && !r.At.IsValid() || err != nil && r != (Real{}) {
			t.Errorf("%+v and %v", r, err)
		}
		if a, err := decodeAddress(unix.AF_INET6, b); err != nil && a.IsValid() {
			t.Errorf("%v and %v", a, err)
		}
	})
}

// TestDecodeAsEncoded: what is written is what is read; a message without its end is not.
func TestDecodeAsEncoded(t *testing.T) {
	for _, at := range []netip.AddrPort{netip.MustParseAddrPort("10.96.0.1:80"), netip.MustParseAddrPort("[fd00::1]:65535")} {
		want := Virtual{VirtualKey: VirtualKey{at.Addr(), unix.IPPROTO_SCTP, at.Port()}, Scheduler: "mh", Flags: Persistent | Sched1 | Sched2, Timeout: time.Hour}
		var m message
		m.virtual(&want)
		if got, err := decodeVirtual(m, &names{}); got != want || err != nil {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
		if got, err := decodeVirtual(m[:len(m)-4], &names{}); err == nil {
			t.Errorf("without its end: %+v", got)
		}
		real := Real{At: at, Weight: 1<<31 - 1}
		m = nil
		m.real(&real)
		if got, err := decodeReal(m, unix.AF_INET); got != real || err != nil {
			t.Errorf("%+v, %v; want %+v", got, err, real)
		}
		if got, err := decodeReal(m[:len(m)-4], unix.AF_INET); err == nil {
			t.Errorf("without its end: %+v", got)
		}
	}
}

// TestOwnAddress: of a line to another end the own end counts, wherever it stands.
func TestOwnAddress(t *testing.T) {
	own, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	add := func(m message, typ uint16, a netip.Addr) message { m.attr(typ, a.AsSlice()...); return m }
	for _, m := range []message{
		add(nil, unix.IFA_ADDRESS, own),
		add(add(nil, unix.IFA_ADDRESS, other), unix.IFA_LOCAL, own),
		add(add(nil, unix.IFA_LOCAL, own), unix.IFA_ADDRESS, other),
	} {
		if a, err := decodeAddress(unix.AF_INET, m); a != own || err != nil {
			t.Errorf("%v, %v of % x", a, err, []byte(m))
		}
	}
}

// TestSettle: a list in parts is read until two readings agree in which nothing comes twice; the last one counts.
func TestSettle(t *testing.T) {
	type row struct{ key, value int }
	for name, c := range map[string]struct {
		whole bool
		lists [][]row // the last one again and again
		want  []row
		times int
		err   error
	}{
		"whole":                {true, [][]row{{{1, 1}, {2, 2}}}, []row{{1, 1}, {2, 2}}, 1, nil},
		"nothing":              {true, [][]row{nil}, nil, 1, nil},
		"quiet":                {false, [][]row{{{1, 1}, {2, 2}}, {{1, 5}, {2, 2}}}, []row{{1, 5}, {2, 2}}, 2, nil},
		"moved before":         {false, [][]row{{{1, 1}, {2, 2}}, {{2, 2}}, {{2, 2}}}, []row{{2, 2}}, 3, nil},
		"in another order":     {false, [][]row{{{1, 1}, {2, 2}}, {{2, 2}, {1, 1}}}, []row{{2, 2}, {1, 1}}, 3, nil},
		"twice each time":      {false, [][]row{{{1, 1}, {2, 2}, {1, 1}}}, nil, readings, ErrInterrupted},
		"never the same again": {false, [][]row{{{1, 1}}, {{2, 1}}, {{3, 1}}, {{4, 1}}, {{5, 1}}, {{6, 1}}, {{7, 1}}, {{8, 1}}, {{9, 1}}}, nil, readings, ErrInterrupted},
		"an error":             {false, [][]row{{{0, 0}}}, nil, 1, netlink.ErrNoAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			times := 0
			got, err := settle(make([]row, 0, 1), func(r *row) int { return r.key }, func(add func(row)) (bool, error) {
				list := c.lists[min(times, len(c.lists)-1)]
				times++
				for _, r := range list {
					add(r)
				}
				if errors.Is(c.err, netlink.ErrNoAnswer) {
					return false, c.err
				}
				return c.whole, nil
			})
			if err == nil && !slices.Equal(got, c.want) || times != c.times || !errors.Is(err, c.err) {
				t.Errorf("%v in %d readings, %v; want %v in %d, %v", got, times, err, c.want, c.times, c.err)
			}
		})
	}
}
