package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"unsafe"

	"golang.org/x/sys/unix"
)

// xtables reads x_tables through options of raw sockets. The kernel needs no lock of the
// programs for that: a write replaces a table as a whole.
type xtables struct {
	v4, v6  int
	turn    turn
	digests digests
}

func openXtables() (*xtables, error) {
	x := &xtables{v4: -1, v6: -1, digests: newDigests()}
	var err4, err6 error
	x.v4, err4 = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	x.v6, err6 = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err4 != nil && err6 != nil {
		return nil, fmt.Errorf("open a raw socket: %w", err4)
	}
	return x, nil
}

// Close implements stamper.
func (x *xtables) Close() error {
	var errs []error
	for _, fd := range []int{x.v4, x.v6} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

func (x *xtables) of(f Family, table string) xtable {
	socket, level := x.v4, unix.SOL_IP
	if f == IPv6 {
		socket, level = x.v6, unix.SOL_IPV6
	}
	return xtable{table, func(option uintptr, buf []byte) error { return getOption(socket, level, option, buf) }, &x.turn}
}

// getOption calls getsockopt: buf holds the request, and the kernel overwrites it with the answer.
func getOption(socket, level int, option uintptr, buf []byte) error {
	if socket < 0 {
		return unix.ENOPROTOOPT // this kernel lacks the family
	}
	length := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), uintptr(level), option,
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (x *xtables) stamp() (Stamp, error) {
	var out Stamp
	for i, t := range [...]xtable{x.of(IPv4, "nat"), x.of(IPv4, "filter"), x.of(IPv4, "mangle"), x.of(IPv6, "nat"), x.of(IPv6, "filter")} {
		head, err := t.head()
		switch {
		case err == nil:
			out.Tables[i] = head.stamp()
		case !absent(err):
			return Stamp{}, fmt.Errorf("read x_tables table %s: %w", t.name, err)
		}
	}
	return out, nil
}

// absent reports whether the error means that there is no such table, and so no rules in it.
func absent(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOPROTOOPT) }

// xtable is one table and the function that requests it.
type xtable struct {
	name string
	ask  func(option uintptr, buf []byte) error
	turn *turn
}

// tableHead is struct ipt_getinfo: for each hook in the mask, the offset of its chain, and
// the offset of the rule that holds its policy.
type tableHead struct {
	name     [32]byte
	hooks    uint32
	begins   [5]uint32
	policies [5]uint32
	entries  uint32
	size     uint32
}

func (h *tableHead) stamp() TableStamp {
	b := binary.NativeEndian.AppendUint32(nil, h.hooks)
	for _, p := range [...]*[5]uint32{&h.begins, &h.policies} {
		for _, place := range p {
			b = binary.NativeEndian.AppendUint32(b, place)
		}
	}
	return TableStamp{Entries: h.entries, Size: h.size, Places: crc32.ChecksumIEEE(b)}
}

// IPT_SO_GET_INFO and IPT_SO_GET_ENTRIES; IPv6 has the same numbers.
const (
	getInfo    = 64
	getEntries = 65
)

func (t xtable) head() (tableHead, error) {
	var h tableHead
	copy(h.name[:], t.name)
	err := t.ask(getInfo, unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h)))
	return h, err
}

// readTries bounds the retries of a read during which the table is replaced.
const readTries = 8

// entriesHead is the size of struct ipt_get_entries: name, size, padding.
const entriesHead = 40

// errReplaced: the table was replaced during each read.
var errReplaced = errors.New("another program replaces the table continuously")

// rules returns the rules of a table in the kernel's binary form, with the matching head.
// The memory is the kernel's copy of the whole table, dozens of MB on a large node, so it is
// outside the garbage collector's heap: release frees it.
func (t xtable) rules() (head tableHead, rules []byte, release func(), err error) {
	if head, err = t.head(); err != nil {
		return head, nil, nil, err
	}
	cuts := 0
	for range readTries + cutsAtMost {
		room, err := mapped(entriesHead + int(head.size))
		if err != nil {
			return head, nil, nil, err
		}
		copy(room.bytes, head.name[:])
		binary.NativeEndian.PutUint32(room.bytes[len(head.name):], head.size)
		t.turn.begin(room, cuts < cutsAtMost)
		err = t.ask(getEntries, room.bytes)
		wasCut := t.turn.end(room)
		now, headErr := t.head()
		switch {
		case wasCut: // whether the copy ended before the cut or not
			cuts++
		case errors.Is(err, unix.EAGAIN): // the table's size has changed
		case err != nil || headErr != nil:
			room.release()
			return head, nil, nil, errors.Join(err, headErr)
		case now == head:
			return head, room.bytes[entriesHead:], room.release, nil
		}
		room.release()
		head = now
	}
	return head, nil, nil, errReplaced
}
