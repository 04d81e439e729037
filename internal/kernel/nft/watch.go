package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
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

// Watch implements Kernel. What this Conn commits is dropped by a filter in the kernel: every message of a commit carries the
// port id of the socket that asked for it, and a datagram never holds messages of two commits (checked on 6.1, 6.12, 6.18).
// After a failure the next Watch opens another socket.
func (c *Conn) Watch(ctx context.Context, moved func(Move)) error {
	if !c.watching.TryLock() {
		return errors.New("watch rule set: already watching")
	}
	defer c.watching.Unlock()
	if c.failed {
		if err := c.reopen(); err != nil {
			return fmt.Errorf("watch rule set again: %w", err)
		}
	}
	err := c.events.watch(ctx, c.cmd.nl.PID(), moved)
	c.failed = err != nil && ctx.Err() == nil
	return err
}

// watch follows the commits of everybody but the socket of port own.
func (s *sock) watch(ctx context.Context, own uint32, moved func(Move)) error {
	if err := s.nl.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("watch rule set: %w", err)
	}
	if err := s.dropFrom(own); err != nil {
		return fmt.Errorf("filter rule set notifications: %w", err)
	}
	if err := s.nl.JoinGroup(nfnlGroupNft); err != nil {
		return fmt.Errorf("join rule set notifications: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = s.nl.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	w := watcher{s: s, moved: moved, port: s.nl.PID(), blind: true, lost: true}
	err := w.follow(ctx)
	// While anyone is a member the kernel builds a message per element, so leave even if the socket is about to go.
	return errors.Join(err, ignoreClosed(s.nl.LeaveGroup(nfnlGroupNft)))
}

func ignoreClosed(err error) error {
	if errors.Is(err, unix.EBADF) {
		return nil
	}
	return err
}

// watcher reads notifications. After a loss (and at the start) it is blind: it empties the queue, asks for the generation, and
// trusts no commit up to the answer. The kernel moves the generation before it tells of a commit, so the answer covers every
// commit of which a part was missed.
type watcher struct {
	s      *sock
	moved  func(Move)
	port   uint32     // of our socket: messages from it are the answer
	blind  bool       // until the answer
	lost   bool       // the queue must be emptied, then the generation asked for
	from   Generation // commits up to here are covered by the last Lost
	tables []TableRef // of the commit whose messages are coming in
	odd    bool       // it has a message that names no table
}

func (w *watcher) follow(ctx context.Context) error {
	for {
		var n int
		var rerr error
		err := w.s.raw.Read(func(fd uintptr) bool {
			n, _, rerr = unix.Recvfrom(int(fd), w.s.buf, unix.MSG_DONTWAIT)
			return w.lost || !errors.Is(rerr, unix.EAGAIN) && !errors.Is(rerr, unix.EINTR)
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("wait for rule set notifications: %w", err)
		case errors.Is(rerr, unix.EINTR):
		case errors.Is(rerr, unix.ENOBUFS):
			w.blind, w.lost = true, true
		case errors.Is(rerr, unix.EAGAIN):
			w.lost = false
			if err := w.s.askGeneration(); err != nil {
				return err
			}
		case rerr != nil:
			return fmt.Errorf("read rule set notifications: %w", rerr)
		default:
			eachMsg(w.s.buf[:n], w.take)
		}
	}
}

func (s *sock) askGeneration() error {
	b := append(appendMsgHdr(nil, nfnlSubsysNft<<8|unix.NFT_MSG_GETGEN, unix.NLM_F_REQUEST), 0, 0, 0, 0)
	endMsg(b, 0)
	if err := s.send([][]byte{b}); err != nil {
		return fmt.Errorf("ask for the rule set generation: %w", err)
	}
	return nil
}

func (w *watcher) take(m nlmsg) bool {
	switch {
	case m.typ>>8 != nfnlSubsysNft || len(m.body) < nfgenLen:
	case !m.isNft(unix.NFT_MSG_NEWGEN):
		if !w.blind {
			w.note(m)
		}
	case m.port == w.port && !w.lost:
		w.blind, w.from = false, genOf(m)
		w.tell(Move{Generation: w.from, Lost: true})
	case w.blind:
	default:
		if g := genOf(m); g.After(w.from) {
			w.tell(Move{Generation: g, Tables: w.tables, Lost: w.odd})
		} else {
			w.tell(Move{})
		}
	}
	return true
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

// dropFrom attaches: A = nlmsg_pid of the first message; drop if it is port. The filter loads big endian what lies there in
// host order.
func (s *sock) dropFrom(port uint32) error {
	k := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, port))
	prog := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 12},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: k},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
	return s.control(func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})
	})
}
