package conntrack

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// deleteChunk is the number of deletions in one datagram.
const deleteChunk = 64

// Config configures a Conn.
type Config struct {
	NetNS int // file descriptor of a network namespace; 0 = the calling thread's
	// Wrap, unless it is nil, wraps each socket. It is for tests.
	Wrap func(netlink.Wire) netlink.Wire
}

// Conn is the Table of a network namespace. It must be used by one goroutine.
type Conn struct {
	nl  *netlink.Conn
	out []byte
}

var _ Table = (*Conn)(nil)

// Open returns a Conn. Its socket stays in the namespace in which it was opened.
func Open(c Config) (*Conn, error) {
	nl, err := netlink.Open(netlink.Config{NetNS: c.NetNS, Wrap: c.Wrap})
	if err != nil {
		return nil, fmt.Errorf("open conntrack: %w", err)
	}
	return &Conn{nl: nl}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.nl.Close() }

// Flows implements Table.
func (c *Conn) Flows(ctx context.Context, f Filter, emit func(Flow)) error {
	if f.Protocol == 0 && (f.OrigPort != 0 || f.ReplyPort != 0 || f.OrigDst.IsValid() || f.ReplySrc.IsValid()) {
		return errors.New("list conntrack flows: a filter needs a protocol")
	}
	seq := c.nl.Reserve(1)
	e := encoder{c.out[:0]}
	e.dump(&f, seq)
	c.out = e.b
	interrupted, err := c.list(netlink.Question{First: seq, Last: seq, Data: [][]byte{e.b}}, func(body []byte) {
		if ctx.Err() != nil {
			return // read to the end nevertheless, so that the socket can be reused
		}
		if x, ok := decodeFlow(body); ok && f.Matches(&x) {
			emit(x)
		}
	})
	switch {
	case err != nil:
		return fmt.Errorf("list conntrack flows: %w", err)
	case ctx.Err() != nil:
		return ctx.Err()
	case interrupted:
		return ErrInterrupted
	}
	return nil
}

// list calls flow with the body of each message of a dump, and returns whether the kernel reports that the table changed during the dump.
func (c *Conn) list(q netlink.Question, flow func(body []byte)) (interrupted bool, err error) {
	var refused error
	err = c.nl.Ask(q, func(m netlink.Message) (done bool) {
		interrupted = interrupted || m.Flags&unix.NLM_F_DUMP_INTR != 0
		switch m.Type {
		case msgNew:
			flow(m.Body)
		case unix.NLMSG_ERROR, unix.NLMSG_DONE:
			if no := m.Errno(); no != 0 {
				refused = no
			}
			return true
		}
		return false
	})
	return interrupted, errors.Join(err, refused)
}

// Delete implements Table.
func (c *Conn) Delete(ctx context.Context, flows []Flow) (int, error) {
	done := 0
	for len(flows) > 0 && ctx.Err() == nil {
		n := min(len(flows), deleteChunk)
		deleted, err := c.deleteSome(flows[:n])
		done += deleted
		if err != nil {
			return done, err
		}
		flows = flows[n:]
	}
	return done, ctx.Err()
}

// deleteSome sends up to deleteChunk deletions in one datagram: only the last
// requests an acknowledgement, the others answer only if they fail.
func (c *Conn) deleteSome(flows []Flow) (int, error) {
	e := encoder{c.out[:0]}
	first := c.nl.Reserve(len(flows))
	last := first + uint32(len(flows)) - 1
	for i := range flows {
		var flags uint16
		if i == len(flows)-1 {
			flags = unix.NLM_F_ACK
		}
		e.remove(&flows[i], flags, first+uint32(i))
	}
	c.out = e.b
	done := len(flows)
	var failed error
	err := c.nl.Ask(netlink.Question{First: first, Last: last, Data: [][]byte{e.b}}, func(m netlink.Message) bool {
		if m.Type != unix.NLMSG_ERROR {
			return false
		}
		if no := m.Errno(); no != 0 {
			done--
			if no != unix.ENOENT && failed == nil {
				failed = fmt.Errorf("delete conntrack flow %s: %w", &flows[m.Seq-first], no)
			}
		}
		return m.Seq == last
	})
	if err != nil { // the number of deletions is unknown: the next dump finds the remaining flows
		return 0, fmt.Errorf("delete conntrack flows: %w", err)
	}
	return done, failed
}
