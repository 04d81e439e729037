package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// Move is one notification of a change to the rule set.
type Move struct {
	// Generation is the result of a commit by another program.
	Generation Generation
	// Tables are the tables that the commit wrote to. The slice is valid until the callback returns.
	Tables []TableRef
	// Lost reports instead that any commits up to Generation may have been missed. It is set in the first Move of a Watch, and
	// after an overflow of the receive buffer.
	Lost bool
}

// eventBytes is the receive buffer of Watch (the kernel doubles it). A commit of 100 000 elements by another program makes 2 500
// datagrams of 4.6 KB with overhead, which fit even if Watch does not read concurrently. The kernel allocates it only for
// queued datagrams.
const eventBytes = 8 << 20

// maxUnanswered bounds the consecutive requests for the generation without an answer, and the consecutive failed reads, before
// Watch abandons its socket.
const maxUnanswered = 100

func eventOptions() netlink.Options {
	return netlink.Options{ReceiveBuffer: eventBytes, ExtendedErrors: true}
}

// Watch implements Kernel. A filter in the kernel drops the notifications of this Conn's own commits: every message of a commit
// carries the port id of the requesting socket, and a datagram never holds messages of two commits (checked on 6.1, 6.12, 6.18).
// After a failure the next Watch opens another socket.
func (c *Conn) Watch(ctx context.Context, moved func(Move)) error {
	if !c.watching.TryLock() {
		return errors.New("watch rule set: already watching")
	}
	defer c.watching.Unlock()
	s, err := c.eventSocket()
	if err != nil {
		return fmt.Errorf("watch rule set: %w", err)
	}
	w := watcher{wire: c.wrap(s), moved: moved, port: s.Port(), blind: true, lost: true, buf: make([]byte, 64<<10)}
	err = w.watch(ctx, s)
	c.failed = err != nil && ctx.Err() == nil
	return err
}

// eventSocket returns the socket for Watch, a new one if the last failed, with a filter against this Conn's own commits.
func (c *Conn) eventSocket() (*netlink.Socket, error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.failed {
		fresh, err := c.cmd.Dial(eventOptions())
		if err != nil {
			return nil, fmt.Errorf("open another socket: %w", err)
		}
		_ = c.events.Close()
		c.events, c.failed = fresh, false
	}
	if err := c.events.DropFrom(c.own); err != nil {
		c.failed = true
		return nil, fmt.Errorf("filter notifications: %w", err)
	}
	return c.events, nil
}

// watcher reads notifications. After a loss (and at the start) it is blind: it empties the queue, requests the generation, and
// ignores commits up to the answer. The kernel updates the generation before it sends a commit's notifications, so the answer
// covers every commit that was received in part. The answer is in the queue when Send returns, so an empty queue means that the
// answer was lost.
type watcher struct {
	wire   netlink.Wire
	buf    []byte
	moved  func(Move)
	port   uint32     // of the watcher's socket: messages with it are answers
	blind  bool       // no answer has arrived since the last loss
	lost   bool       // the queue must be emptied before the generation is requested
	asked  uint32     // sequence number of the last request
	vain   int        // requests since the last answer
	fails  int        // consecutive failed reads
	from   Generation // commits up to this one are covered by the last Lost
	tables []TableRef // tables of the commit whose messages are being received
	odd    bool       // that commit has a message that names no table
}

func (w *watcher) watch(ctx context.Context, s *netlink.Socket) error {
	if err := s.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("watch rule set: %w", err)
	}
	if err := s.Join(nfnlGroupNft); err != nil {
		return fmt.Errorf("join rule set notifications: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = s.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err := w.follow(ctx)
	// While the group has a member, the kernel builds a message per element. So leave it even if the socket is about to be closed.
	return errors.Join(err, ignoreClosed(s.Leave(nfnlGroupNft)))
}

func ignoreClosed(err error) error {
	if errors.Is(err, unix.EBADF) {
		return nil
	}
	return err
}

func (w *watcher) follow(ctx context.Context) error {
	for w.fails < maxUnanswered {
		n, err := w.wire.Receive(w.buf, !w.blind)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && n <= len(w.buf) && netlink.Each(w.buf[:n], w.take) == nil:
			w.fails = 0
		case err == nil, errors.Is(err, unix.ENOBUFS): // truncated, or dropped because the buffer was full
			w.fails++
			w.blind, w.lost = true, true
		case errors.Is(err, unix.EINTR):
			w.fails++
		case errors.Is(err, unix.EAGAIN): // the queue is empty
			w.lost = false
			if err := w.askGeneration(); err != nil {
				return err
			}
		default:
			return fmt.Errorf("read rule set notifications: %w", err)
		}
	}
	return errors.New("read rule set notifications: no data")
}

func (w *watcher) askGeneration() error {
	if w.vain++; w.vain > maxUnanswered {
		return errors.New("read the rule set generation: no reply")
	}
	w.asked++
	b := appendQuestion(nil, unix.NFT_MSG_GETGEN, 0, nil)
	binary.NativeEndian.PutUint32(b[8:], w.asked)
	if err := w.wire.Send([][]byte{b}); err != nil && !errors.Is(err, unix.EINTR) { // interrupted: the request is retried
		return fmt.Errorf("read the rule set generation: %w", err)
	}
	return nil
}

func (w *watcher) take(msg netlink.Message) {
	m := nlmsg{msg}
	switch {
	case m.Type>>8 != nfnlSubsysNft || len(m.Body) < nfgenLen:
	case !m.isNft(unix.NFT_MSG_NEWGEN):
		if !w.blind {
			w.note(m)
		}
	case m.Port == w.port && m.Seq == w.asked && !w.lost:
		w.blind, w.vain, w.from = false, 0, genOf(m)
		w.tell(Move{Generation: w.from, Lost: true})
	case w.blind:
	default:
		if g := genOf(m); g.After(w.from) {
			w.tell(Move{Generation: g, Tables: w.tables, Lost: w.odd})
		} else {
			w.tell(Move{})
		}
	}
}

// tell reports a commit and resets the state for the next one.
func (w *watcher) tell(m Move) {
	if m.Generation != 0 {
		w.moved(m)
	}
	w.tables, w.odd = w.tables[:0], false
}

// note records the table of a message. The messages of one table are consecutive, thousands if elements are written.
func (w *watcher) note(m nlmsg) {
	name := tableName(m)
	if name == nil {
		w.odd = true
		return
	}
	is := func(t TableRef) bool { return t.Family == m.family() && t.Name == string(name) }
	if n := len(w.tables); n > 0 && is(w.tables[n-1]) || slices.ContainsFunc(w.tables, is) {
		return
	}
	w.tables = append(w.tables, TableRef{m.family(), string(name)})
}

// tableName returns the table that an nftables message names: attribute 1 of all of them, and the first one in the kernel's
// messages.
func tableName(m nlmsg) []byte {
	const table = 1
	if a := m.attrs(); len(a) >= attrHdrLen && binary.NativeEndian.Uint16(a[2:]) == table {
		if n := int(binary.NativeEndian.Uint16(a)); n > attrHdrLen && n <= len(a) {
			return cstr(a[attrHdrLen:n])
		}
	}
	return nil
}
