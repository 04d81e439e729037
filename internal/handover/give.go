package handover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/control"
)

// Giver is the owner of state that can be handed over. Its methods are called one at a time.
type Giver interface {
	// Pause stops accepting anything new. The owned state does not change after it returns.
	Pause()
	// Estate calls emit for each Item of the state; emit takes ownership of the Item's file.
	Estate(emit func(Item) error) error
	// Resume undoes Pause: the handover failed, and this process still owns the state.
	Resume()
	// Release drops the state that was handed over: another process owns it now.
	Release()
}

// Params configure Give.
type Params struct {
	Giver Giver
	Limit time.Duration // for all steps of the successor together; 0 = 5 s
	Log   *slog.Logger
}

// Given is a completed handover, from the sender's side. The successor waits for Close:
// by then the addresses of this process must be free.
type Given struct {
	To   int // process ID of the successor
	conn *net.UnixConn
}

// Close notifies the successor that this process has freed its addresses.
func (g *Given) Close() { _ = g.conn.Close() }

// Give accepts requests until a successor has taken the whole state. It returns nil when ctx ends.
// A failed handover is logged, and changes nothing.
func Give(ctx context.Context, p Params) *Given {
	if p.Limit == 0 {
		p.Limit = totalLimit
	}
	l := listen(ctx, p.Log)
	if l == nil {
		return nil
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer func() { _ = l.Close() }()
	for {
		c, err := l.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			p.Log.Warn("cannot accept a handover request", "error", err)
			pause(ctx)
			continue
		}
		g, err := give(c, p)
		if err == nil {
			return g
		}
		_ = c.Close()
		if errors.Is(err, io.EOF) {
			err = errors.New("the requesting process has exited")
		}
		p.Log.Warn("handover failed; this agent continues", "error", err)
	}
}

// listen retries until the socket is open: the predecessor may hold the name for a moment.
func listen(ctx context.Context, log *slog.Logger) *net.UnixListener {
	for told := false; ctx.Err() == nil; pause(ctx) {
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: Name, Net: "unixpacket"})
		if err == nil {
			return l
		}
		if !told {
			told = true
			log.Warn("cannot listen for handover requests yet; trying again", "socket", Name, "error", err)
		}
	}
	return nil
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

func give(c *net.UnixConn, p Params) (*Given, error) {
	who, err := control.Peer(c)
	if err != nil {
		return nil, err
	}
	if !control.Trusted(int(who.Uid)) {
		return nil, fmt.Errorf("request from pid %d of user %d, which is not the user of this agent", who.Pid, who.Uid)
	}
	w := wire{c: c, limit: p.Limit, until: time.Now().Add(p.Limit)}
	p.Giver.Pause()
	err = sendAll(w, p.Giver)
	if err == nil {
		err = lastWord(w)
	}
	if err != nil {
		p.Giver.Resume()
		return nil, err
	}
	p.Giver.Release()
	return &Given{To: int(who.Pid), conn: c}, nil
}

func sendAll(w wire, g Giver) error {
	var batch []Item
	size := 0
	flush := func() error {
		defer closeFiles(batch)
		if len(batch) == 0 {
			return nil
		}
		return w.send(batch)
	}
	err := g.Estate(func(it Item) error {
		if n := len(it.Value); len(batch) == batchItems || size+n > batchBytes {
			err := flush()
			if batch, size = nil, 0; err != nil {
				closeFiles([]Item{it})
				return err
			}
		}
		batch, size = append(batch, it), size+len(it.Value)
		return nil
	})
	if err != nil {
		closeFiles(batch)
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	return w.say(wordEnd)
}

// lastWord waits for the successor's confirmation that it owns the state. After the
// deadline a confirmation must not count any more: the socket is shut down for reading
// first, and a message that arrived before that is still read. So both sides agree on
// the owner.
func lastWord(w wire) error {
	err := w.hear(wordMine)
	var late net.Error
	if !errors.As(err, &late) || !late.Timeout() {
		return err
	}
	raw, rawErr := w.c.SyscallConn()
	if rawErr != nil {
		return rawErr
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RD) })
	if w.hear(wordMine) == nil {
		return nil
	}
	return err
}
