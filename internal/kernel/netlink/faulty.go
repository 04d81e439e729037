package netlink

import (
	"encoding/binary"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Fault is an error to inject into one call of a Wire.
type Fault uint8

// The faults. Errors are returned in place of the call, which leaves a datagram in the queue.
const (
	None         Fault = iota
	Lost               // drops everything in the queue: EAGAIN, or the next datagram
	Overrun            // drops one datagram and returns ENOBUFS
	Truncated          // reports that the datagram is longer than the buffer
	Cut                // cuts the end of the datagram's last message off
	Delayed            // delays everything in the queue until after the next request
	Interrupted        // EINTR
	Empty              // EAGAIN
	Exhausted          // ENOBUFS
	Broken             // EBADF, from then on, for this socket
	Unanswered         // EIO although the request was sent and handled
	Inconsistent       // sets NLM_F_DUMP_INTR in the messages: the listed objects changed during the dump
	faults
)

// EveryFault returns all faults of a socket: all but None and Inconsistent.
func EveryFault() []Fault {
	var out []Fault
	for f := None + 1; f < Inconsistent; f++ {
		out = append(out, f)
	}
	return out
}

// String returns the name that tests print.
func (f Fault) String() string {
	return [faults]string{"none", "lost", "overrun", "truncated", "cut", "delayed", "interrupted", "empty", "exhausted", "broken", "unanswered", "inconsistent"}[f]
}

func (f Fault) errno() error {
	switch f {
	case Overrun, Exhausted:
		return unix.ENOBUFS
	case Interrupted:
		return unix.EINTR
	case Empty:
		return unix.EAGAIN
	case Broken:
		return unix.EBADF
	}
	return unix.EIO
}

// Faults injects errors into the sockets of a Conn: use Wrap as its Config.Wrap. A nil function injects none. The
// functions are called with the number of the call, from 0 on, over all sockets.
type Faults struct {
	OnSend, OnReceive func(call int) Fault

	mu                     sync.Mutex
	sent, received, opened int
}

// Wrap returns a faulty Wire around another.
func (f *Faults) Wrap(w Wire) Wire {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened++
	return &faultyWire{Wire: w, faults: f}
}

// Calls returns the numbers of sockets opened and of calls to send and to receive.
func (f *Faults) Calls() (opened, sent, received int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened, f.sent, f.received
}

// Plan replaces the functions.
func (f *Faults) Plan(onSend, onReceive func(call int) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.OnSend, f.OnReceive, f.sent, f.received = onSend, onReceive, 0, 0
}

// next returns the fault of a call and counts the call.
func (f *Faults) next(on *func(int) Fault, count *int) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	*count++
	if *on == nil {
		return None
	}
	return (*on)(*count - 1)
}

type faultyWire struct {
	Wire
	faults  *Faults
	broken  bool
	delayed [][]byte // datagrams held back until the next request
	late    [][]byte // datagrams to return before all others
}

// Send implements Wire.
func (w *faultyWire) Send(bufs [][]byte) error {
	f := w.faults.next(&w.faults.OnSend, &w.faults.sent)
	w.broken = w.broken || f == Broken
	switch {
	case w.broken:
		return unix.EBADF
	case f != None && f != Unanswered:
		return f.errno()
	}
	w.late, w.delayed = append(w.late, w.delayed...), nil
	if err := w.Wire.Send(bufs); err != nil {
		return err
	}
	if f == Unanswered {
		return f.errno()
	}
	return nil
}

// Receive implements Wire.
func (w *faultyWire) Receive(b []byte, wait bool) (int, error) {
	f := w.faults.next(&w.faults.OnReceive, &w.faults.received)
	w.broken = w.broken || f == Broken
	switch {
	case w.broken:
		return 0, unix.EBADF
	case f == Interrupted, f == Empty, f == Exhausted, f == Unanswered:
		return 0, f.errno()
	}
	for f == Lost || f == Delayed {
		n, err := w.receive(b, false)
		if err != nil {
			break
		}
		if f == Delayed {
			w.delayed = append(w.delayed, slices.Clone(b[:n]))
		}
	}
	n, err := w.receive(b, wait)
	switch {
	case err != nil:
	case f == Overrun:
		return 0, f.errno()
	case f == Truncated:
		return len(b) + 1, nil
	case f == Cut:
		return n - 1, nil
	case f == Inconsistent:
		markInconsistent(b[:min(n, len(b))])
	}
	return n, err
}

func (w *faultyWire) receive(b []byte, wait bool) (int, error) {
	if len(w.late) > 0 {
		n := copy(b, w.late[0])
		w.late = w.late[1:]
		return n, nil
	}
	return w.Wire.Receive(b, wait)
}

// markInconsistent sets NLM_F_DUMP_INTR in each message of a datagram.
func markInconsistent(b []byte) {
	for len(b) >= HeaderLen {
		n := int(binary.NativeEndian.Uint32(b))
		flags := binary.NativeEndian.Uint16(b[6:])
		binary.NativeEndian.PutUint16(b[6:], flags|unix.NLM_F_DUMP_INTR)
		b = b[min(max(n+3, HeaderLen)&^3, len(b)):]
	}
}
