package ipvs

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// table answers as do_ip_vs_get_ctl does: the buffer must have exactly the size that goes with the room in it, and of what is there only
// as many entries are written as there is room for.
type table struct {
	virtuals [][serviceBytes]byte
	reals    map[uint16][][destBytes]byte // by port of the virtual server
	asked    []uintptr
	before   func(option uintptr) // another program's changes
}

func (k *table) ask(option uintptr, buf []byte) error {
	k.asked = append(k.asked, option)
	if k.before != nil {
		k.before(option)
	}
	switch option {
	case optGetInfo:
		binary.NativeEndian.PutUint32(buf[infoServices:], uint32(len(k.virtuals)))
		return nil
	case optGetServices:
		room := int(binary.NativeEndian.Uint32(buf))
		if len(buf) != servicesBytes+room*serviceBytes {
			return unix.EINVAL
		}
		for i := range min(room, len(k.virtuals)) {
			copy(buf[servicesBytes+i*serviceBytes:], k.virtuals[i][:])
		}
		return nil
	}
	room := int(binary.NativeEndian.Uint32(buf[destsRoom:]))
	if len(buf) != destsBytes+room*destBytes {
		return unix.EINVAL
	}
	list, there := k.reals[binary.BigEndian.Uint16(buf[servicePort:])]
	if !there {
		return unix.ESRCH
	}
	for i := range min(room, len(list)) {
		copy(buf[destsBytes+i*destBytes:], list[i][:])
	}
	return nil
}

// serve adds a virtual server at a port with so many real ones.
func (k *table) serve(port uint16, reals int) {
	var v [serviceBytes]byte
	binary.NativeEndian.PutUint16(v[:], unix.IPPROTO_TCP)
	copy(v[serviceAddr:], []byte{10, 96, 0, 1})
	binary.BigEndian.PutUint16(v[servicePort:], port)
	copy(v[serviceSched:], "rr")
	binary.NativeEndian.PutUint32(v[serviceDests:], uint32(reals))
	k.virtuals = append(k.virtuals, v)
	k.reals[port] = nil
	k.join(port, reals)
}

func (k *table) join(port uint16, reals int) {
	for range reals {
		var r [destBytes]byte
		n := len(k.reals[port])
		copy(r[:], []byte{10, 244, byte(n >> 8), byte(n)})
		binary.BigEndian.PutUint16(r[destsPort:], 8080)
		binary.NativeEndian.PutUint32(r[destsWeight:], uint32(n))
		k.reals[port] = append(k.reals[port], r)
	}
}

func newTable() (*table, *options) {
	k := &table{reals: map[uint16][][destBytes]byte{}}
	return k, &options{ask: k.ask}
}

// TestOptionsRoom: all come, however many there are, in whatever order large and small ones are asked for; with what is expected in one question.
func TestOptionsRoom(t *testing.T) {
	k, o := newTable()
	sizes := []int{0, 1, 63, 64, 65, 500, 2, 501, 0, 5000, 7}
	for i, n := range sizes {
		k.serve(uint16(i+1), n)
	}
	var listed []int
	err := o.virtuals(func(v *Virtual, reals int) {
		listed = append(listed, reals)
		for _, expected := range []int{reals, 0} {
			k.asked = nil
			got, err := o.reals(nil, v.VirtualKey, expected)
			if err != nil || len(got) != reals || expected == reals && len(k.asked) != 1 {
				t.Errorf("port %d, %d expected: %d real servers, %v, in %d questions; want %d", v.Port, expected, len(got), err, len(k.asked), reals)
			}
			for i, r := range got {
				want := Real{At: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)}), 8080), Weight: uint32(i)}
				if r != want {
					t.Fatalf("port %d: real server %d is %+v, want %+v", v.Port, i, r, want)
				}
			}
		}
	})
	if err != nil || !slices.Equal(listed, sizes) {
		t.Errorf("virtual servers with %v real ones, %v; want %v", listed, err, sizes)
	}
}

// TestOptionsReadOnly: a mask counts with persistence only, and a limit is the upper one.
func TestOptionsReadOnly(t *testing.T) {
	k, o := newTable()
	type of struct {
		flags Flags
		mask  uint32
	}
	var got []bool
	cases := []of{{Persistent, 0xffffffff}, {Persistent, 0xffff}, {Persistent | Sched1, 0}, {Sched1, 0xffff}, {0, 0}}
	for i, c := range cases {
		k.serve(uint16(i+1), 3)
		binary.NativeEndian.PutUint32(k.virtuals[i][serviceFlags:], uint32(c.flags))
		binary.NativeEndian.PutUint32(k.virtuals[i][serviceMask:], c.mask)
	}
	if err := o.virtuals(func(v *Virtual, _ int) { got = append(got, v.Wide) }); err != nil || !slices.Equal(got, []bool{false, true, true, false, false}) {
		t.Errorf("%+v: %v, %v", cases, got, err)
	}
	binary.NativeEndian.PutUint32(k.reals[1][1][destsUpper:], 9)
	binary.NativeEndian.PutUint32(k.reals[1][2][destsUpper+4:], 9) // the lower one means nothing alone
	reals, err := o.reals(nil, VirtualKey{netip.MustParseAddr("10.96.0.1"), unix.IPPROTO_TCP, 1}, 3)
	if err != nil || len(reals) != 3 || reals[0].Limited || !reals[1].Limited || reals[2].Limited {
		t.Errorf("%+v, %v", reals, err)
	}
}

// TestOptionsGrowing: many virtual servers come between the question how many there are and the list.
func TestOptionsGrowing(t *testing.T) {
	const many = 3 * spare
	k, o := newTable()
	k.before = func(option uintptr) {
		for option == optGetServices && len(k.virtuals) < many {
			k.serve(uint16(len(k.virtuals)+1), 0)
		}
	}
	n := 0
	if err := o.virtuals(func(*Virtual, int) { n++ }); err != nil || n != many {
		t.Errorf("%d virtual servers, %v; want %d", n, err, many)
	}
}

// TestOptionsErrors: a missing virtual server is distinguished from a failure, and the rest of an incomplete answer is in no later one.
func TestOptionsErrors(t *testing.T) {
	k, o := newTable()
	k.serve(1, 3)
	at := VirtualKey{netip.MustParseAddr("10.96.0.1"), unix.IPPROTO_TCP, 1}
	gone := at
	gone.Port = 9
	if got, err := o.reals(nil, gone, 5); len(got) > 0 || !errors.Is(err, unix.ESRCH) {
		t.Errorf("one that is gone: %v, %v", got, err)
	}
	whole := o.ask
	o.ask = func(option uintptr, buf []byte) error { return errors.Join(whole(option, buf), unix.EFAULT) }
	if _, err := o.reals(nil, at, 3); !errors.Is(err, unix.EFAULT) {
		t.Errorf("an unfinished answer: %v", err)
	}
	if err := o.virtuals(func(*Virtual, int) { t.Error("a virtual server of an unfinished answer") }); !errors.Is(err, unix.EFAULT) {
		t.Errorf("an unfinished list: %v", err)
	}
	o.ask = whole
	k.reals[1] = k.reals[1][:1]
	if got, err := o.reals(nil, at, 3); err != nil || len(got) != 1 {
		t.Errorf("afterwards: %v, %v; want one real server", got, err)
	}
}

// TestOptionsNonsense: whatever is in the answers, reading ends, and asks for no more than a bound.
func TestOptionsNonsense(t *testing.T) {
	at := VirtualKey{Addr: netip.MustParseAddr("10.96.0.1")}
	chance := rand.New(rand.NewPCG(1, 2))
	some := &options{ask: func(option uintptr, buf []byte) error {
		for i := range min(len(buf), chance.IntN(1000)) {
			buf[i] = byte(chance.Uint32())
		}
		if option == optGetInfo {
			binary.NativeEndian.PutUint32(buf[infoServices:], 5)
		}
		return nil
	}}
	for range 1000 {
		some.buf = nil
		err := some.virtuals(func(*Virtual, int) {})
		if got, err2 := some.reals(nil, at, 5); err != nil || err2 != nil || len(got) > 1+1000/destBytes {
			t.Fatalf("%v, %v, %d real servers", err, err2, len(got))
		}
	}
	endless := &options{ask: func(_ uintptr, buf []byte) error {
		for i := range buf {
			buf[i] = 1
		}
		return nil
	}}
	err := endless.virtuals(func(*Virtual, int) {})
	if _, err2 := endless.reals(nil, at, 5); !errors.Is(err, errTooMany) || !errors.Is(err2, errTooMany) {
		t.Errorf("answers without an end: %v, %v", err, err2)
	}
}
