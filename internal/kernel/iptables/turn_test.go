package iptables

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/test/patience"
)

// slow is a kernel that copies a table until it is let go, or can write no more.
type slow struct {
	head     tableHead
	zeros    *os.File
	began    chan struct{}
	let      chan struct{}
	faults   int
	finished int
}

func (s *slow) ask(option uintptr, buf []byte) error {
	k := &replaced{heads: []tableHead{s.head}}
	if option == getInfo {
		return k.ask(option, buf)
	}
	s.began <- struct{}{}
	for {
		// The system call reports memory that is not accessible; an access by this program would crash it.
		if _, err := unix.Read(int(s.zeros.Fd()), buf[entriesHead:]); err != nil {
			s.faults++
			return err
		}
		select {
		case <-s.let:
			s.finished++
			return nil
		case <-time.After(time.Millisecond): // the kernel takes its time
		}
	}
}

// TestCopyGivesWay: a Restore cuts each copy in progress, which is retried after it, but not forever: after
// a number of retries the read continues to its end.
func TestCopyGivesWay(t *testing.T) {
	zeros, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = zeros.Close() }()
	s := &slow{head: tableHead{hooks: 1, entries: 1, size: 1 << 16}, zeros: zeros, began: make(chan struct{}), let: make(chan struct{})}
	turn := &turn{}
	read := make(chan error, 1)
	go func() {
		_, rules, release, err := xtable{"nat", s.ask, turn}.rules()
		if err == nil {
			_, err = io.Discard.Write(rules[:1])
			release()
		}
		read <- err
	}()
	for range cutsAtMost + 1 {
		select {
		case <-s.began:
		case err := <-read:
			t.Fatalf("the reading ended while it was cut off: %v", err)
		case <-time.After(patience.Of(30 * time.Second)): // a copy begins at once
			t.Fatal("no copy began: the one before was not cut off")
		}
		turn.Lock()
		select {
		case <-s.began:
			t.Error("a copy began beside a Restore")
		case <-time.After(20 * time.Millisecond): // one that begins does so at once
		}
		turn.Unlock()
	}
	close(s.let)
	if err := <-read; err != nil || s.faults != cutsAtMost || s.finished != 1 || len(turn.copies) != 0 {
		t.Errorf("%d copies were cut off, want %d; %d ended; %d are noted: %v", s.faults, cutsAtMost, s.finished, len(turn.copies), err)
	}
}

// TestFaultOfNobody: a copy that fails by itself, for there is no memory, is an error and not tried again.
func TestFaultOfNobody(t *testing.T) {
	asked := 0
	ask := func(option uintptr, buf []byte) error {
		if option == getInfo {
			return (&replaced{heads: []tableHead{{hooks: 1, size: 8}}}).ask(option, buf)
		}
		asked++
		return unix.EFAULT
	}
	if _, _, _, err := (xtable{"nat", ask, &turn{}}).rules(); !errors.Is(err, unix.EFAULT) || asked != 1 {
		t.Errorf("after %d copies: %v", asked, err)
	}
}

// TestKernelGivesUpACutCopy: the kernel aborts a copy whose memory is protected, and returns the whole table afterwards.
func TestKernelGivesUpACutCopy(t *testing.T) {
	netnstest.Enter(t)
	x, err := openXtables()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = x.Close() }()
	nat := x.of(IPv4, "nat")
	head, err := nat.head()
	if err != nil {
		t.Fatal(err)
	}
	room, err := mapped(entriesHead + int(head.size))
	if err != nil {
		t.Fatal(err)
	}
	copy(room.bytes, head.name[:])
	binary.NativeEndian.PutUint32(room.bytes[len(head.name):], head.size)
	if err := unix.Mprotect(room.bytes, unix.PROT_READ); err != nil { // the kernel reads the question and then cannot write
		t.Fatal(err)
	}
	if err := nat.ask(getEntries, room.bytes); !errors.Is(err, unix.EFAULT) {
		t.Errorf("a copy to where nothing can be written: %v", err)
	}
	nat.turn.begin(room, true)
	write := func(turn *turn) {
		turn.Lock()
		defer turn.Unlock()
	}
	write(nat.turn)
	if err := nat.ask(getEntries, room.bytes); !errors.Is(err, unix.EFAULT) || !nat.turn.end(room) {
		t.Errorf("a copy that was cut off: %v", err)
	}
	room.release()
	_, rules, release, err := nat.rules()
	if err != nil || len(rules) != int(head.size) {
		t.Fatalf("%d bytes of %d: %v", len(rules), head.size, err)
	}
	release()
}
