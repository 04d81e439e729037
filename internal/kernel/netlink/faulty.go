package netlink

import (
	"encoding/binary"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Fault is what goes wrong in one call of a Wire.
type Fault uint8

// The faults. Errors come in place of the call, which leaves a datagram where it is.
const (
	None         Fault = iota
	Lost               // all that is in the socket disappears: EAGAIN, or the next that comes
	Overrun            // one datagram disappears, and ENOBUFS tells
	Truncated          // the datagram is longer than the buffer
	Cut                // the last message of the datagram misses its end
	Delayed            // all that is in the socket comes after the next question
	Interrupted        // EINTR
	Empty              // EAGAIN
	Exhausted          // ENOBUFS
	Broken             // EBADF, from now on, for this socket
	Unanswered         // EIO although a question was sent, and done
	Inconsistent       // the messages say that what is listed changed meanwhile (NLM_F_DUMP_INTR)
	faults
)

// EveryFault lists all of a socket's, which is all but None and Inconsistent.
func EveryFault() []Fault {
	var out []Fault
	for f := None + 1; f < Inconsistent; f++ {
		out = append(out, f)
	}
	return out
}

// String is for the names of tests.
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

// Faults plans what goes wrong with the sockets of a Conn: use Wrap as its Config.Wrap. A nil function lets all go well. The
// functions are asked with the number of the call, from 0 on, over all sockets.
type Faults struct {
	OnSend, OnReceive func(call int) Fault

	mu                     sync.Mutex
	sent, received, opened int
}

// Wrap puts a faulty Wire in front of another.
func (f *Faults) Wrap(w Wire) Wire {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened++
	return &faultyWire{Wire: w, faults: f}
}

// Calls is how many sockets were opened, and how often one was asked to send and to receive.
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

// next asks for the fault of a call and counts it.
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
	delayed [][]byte // until the next question
	late    [][]byte // to be received before anything else
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

// markInconsistent sets a flag of each message of a datagram.
func markInconsistent(b []byte) {
	for len(b) >= HeaderLen {
		n := int(binary.NativeEndian.Uint32(b))
		flags := binary.NativeEndian.Uint16(b[6:])
		binary.NativeEndian.PutUint16(b[6:], flags|unix.NLM_F_DUMP_INTR)
		b = b[min(max(n+3, HeaderLen)&^3, len(b)):]
	}
}
