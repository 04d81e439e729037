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

// Move is one piece of news of the rule set.
type Move struct {
	// Generation is the one that a commit of somebody else made.
	Generation Generation
	// Tables are those in which that commit did anything. The slice is valid until the callback returns.
	Tables []TableRef
	// Lost says instead that any commit up to Generation may have passed unseen: so the first Move of a Watch, and those after
	// an overflow of the receive buffer.
	Lost bool
}

// eventBytes is the receive buffer of Watch (the kernel doubles it): a commit of 100 000 elements by somebody else makes 2 500
// datagrams of 4.6 KB with overhead, which fit even if nobody reads meanwhile. It is memory only while it is in use.
const eventBytes = 8 << 20

// maxUnanswered bounds how often Watch asks for the generation in vain, and how many reads in a row may fail, before it gives
// its socket up.
const maxUnanswered = 100

func eventOptions() netlink.Options {
	return netlink.Options{ReceiveBuffer: eventBytes, ExtendedErrors: true}
}

// Watch implements Kernel. What this Conn commits is dropped by a filter in the kernel: every message of a commit carries the
// port id of the socket that asked for it, and a datagram never holds messages of two commits (checked on 6.1, 6.12, 6.18).
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

// eventSocket returns the socket for Watch, another one if the last failed, with a filter against what we commit ourselves.
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

// watcher reads notifications. After a loss (and at the start) it is blind: it empties the queue, asks for the generation, and
// trusts no commit up to the answer. The kernel moves the generation before it tells of a commit, so the answer covers every
// commit of which a part was missed. The answer is in the queue when the question is sent: a queue without it has lost it.
type watcher struct {
	wire   netlink.Wire
	buf    []byte
	moved  func(Move)
	port   uint32     // of our socket: messages from it are the answer
	blind  bool       // until the answer
	lost   bool       // the queue must be emptied, then the generation asked for
	asked  uint32     // number of the last question
	vain   int        // questions since the last answer
	fails  int        // reads that failed, in a row
	from   Generation // commits up to here are covered by the last Lost
	tables []TableRef // of the commit whose messages are coming in
	odd    bool       // it has a message that names no table
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
	// While anyone is a member the kernel builds a message per element, so leave even if the socket is about to go.
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
		case err == nil, errors.Is(err, unix.ENOBUFS): // cut off, or dropped for want of room
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
	return errors.New("read rule set notifications: nothing can be read")
}

func (w *watcher) askGeneration() error {
	if w.vain++; w.vain > maxUnanswered {
		return errors.New("ask for the rule set generation: no answer comes")
	}
	w.asked++
	b := appendQuestion(nil, unix.NFT_MSG_GETGEN, 0, nil)
	binary.NativeEndian.PutUint32(b[8:], w.asked)
	if err := w.wire.Send([][]byte{b}); err != nil && !errors.Is(err, unix.EINTR) { // interrupted: it is asked again
		return fmt.Errorf("ask for the rule set generation: %w", err)
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

// tell ends a commit.
func (w *watcher) tell(m Move) {
	if m.Generation != 0 {
		w.moved(m)
	}
	w.tables, w.odd = w.tables[:0], false
}

// note adds the table of a message. Messages of one table follow each other, thousands if elements are written.
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

// tableName is the name of the table that an nftables message is about: attribute 1 of all of them, the first one in what the
// kernel sends.
func tableName(m nlmsg) []byte {
	const table = 1
	if a := m.attrs(); len(a) >= attrHdrLen && binary.NativeEndian.Uint16(a[2:]) == table {
		if n := int(binary.NativeEndian.Uint16(a)); n > attrHdrLen && n <= len(a) {
			return cstr(a[attrHdrLen:n])
		}
	}
	return nil
}
