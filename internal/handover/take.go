package handover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/control"
)

// ErrNobody reports that no agent runs from which this process could take over.
var ErrNobody = errors.New("no agent in userspace mode runs in this network namespace")

// queueName is the socket name that the process about to take over holds.
const queueName = "@fairlead-heir"

// Queue waits until no other process is about to take over in this network namespace. It
// returns leave, which ends this process's turn and may be called twice. On an error the
// limit has passed or ctx has ended, and leave does nothing.
func Queue(ctx context.Context, limit time.Duration) (leave func(), err error) {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	for {
		c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: queueName, Net: "unixgram"})
		if err == nil {
			return func() { _ = c.Close() }, nil
		}
		select {
		case <-ctx.Done():
			return func() {}, err
		case <-time.After(20 * time.Millisecond): // between two attempts
		}
	}
}

// Taken is a completed handover, from the successor's side.
type Taken struct {
	From  int // process ID of the sender
	Items []Item
	w     wire
}

// Ask takes over the whole state of the agent in this network namespace. It calls usable
// with the Items before it confirms; an error of usable cancels the handover. On an error
// the sender still owns the state. limit bounds each step; 0 = 20 s.
func Ask(ctx context.Context, limit time.Duration, usable func([]Item) error) (*Taken, error) {
	if limit == 0 {
		limit = stepLimit
	}
	c, err := new(net.Dialer).DialContext(ctx, "unixpacket", Name)
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, ErrNobody
	}
	if err != nil {
		return nil, fmt.Errorf("request a handover from the running agent: %w", err)
	}
	t := &Taken{w: wire{c: c.(*net.UnixConn), limit: limit}}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	err = t.take(usable)
	if !stop() {
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		closeFiles(t.Items)
		_ = c.Close()
		return nil, fmt.Errorf("take over from the running agent: %w", err)
	}
	return t, nil
}

func (t *Taken) take(usable func([]Item) error) error {
	who, err := control.Peer(t.w.c)
	if err != nil {
		return err
	}
	if !control.Trusted(int(who.Uid)) {
		return &control.SquattedError{PID: int(who.Pid), UID: int(who.Uid), Socket: Name}
	}
	t.From = int(who.Pid)
	for {
		list, err := t.w.receive()
		if err != nil {
			return err
		}
		if list == nil {
			break
		}
		t.Items = append(t.Items, list...)
	}
	if err := usable(t.Items); err != nil {
		return err
	}
	return t.w.say(wordMine)
}

// Close closes the Items' files. Their users have duplicated them by now.
func (t *Taken) Close() { closeFiles(t.Items) }

// Wait waits until the sender has freed its addresses, or the limit has passed.
func (t *Taken) Wait() error {
	defer func() { _ = t.w.c.Close() }()
	err := t.w.hear("")
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	return err
}
