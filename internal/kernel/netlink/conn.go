package netlink

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// recvBytes is the size of the reads: the kernel sizes dump messages by the largest read it has seen, up to 32 KiB, and a
	// dump's cost falls with the number of messages because it restarts its walk in each.
	recvBytes = 64 << 10
	// maxInterrupts bounds the retries of one system call that signals interrupt, maxLosses the losses within one
	// answer after which reading continues.
	maxInterrupts = 100
	maxLosses     = 100
)

// ErrNoAnswer: the answer to a request, or a part of it, was lost. The request may have been
// applied.
var ErrNoAnswer = errors.New("the kernel's reply was lost")

// Config configures a Conn.
type Config struct {
	Options
	NetNS int // file descriptor of a network namespace, used by Open only; 0: the calling thread's
	// Wrap wraps each socket that the Conn opens: Gently, or a wrapper of a test.
	Wrap func(Wire) Wire
	// OnReopen is called with the socket that is about to replace a failed one.
	OnReopen func(*Socket) error
}

// Conn sends requests to the kernel, one at a time, over a socket in one network namespace. All methods but Dial and Close
// must be called from one goroutine.
type Conn struct {
	cfg  Config
	wire Wire // sock, or its wrapper
	buf  []byte
	seq  uint32
	bad  bool // the socket has failed, or its queue is in an unknown state

	mu     sync.Mutex // guards the fields that Dial and Close use
	sock   *Socket
	home   home
	closed bool
}

// Open returns a Conn. It needs CAP_NET_ADMIN over the namespace, and CAP_SYS_ADMIN to enter a namespace passed by descriptor.
func Open(cfg Config) (*Conn, error) {
	s, err := dial(cfg.NetNS, cfg.Options)
	if err != nil {
		return nil, err
	}
	h, err := homeOf(s)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	c := &Conn{cfg: cfg, buf: make([]byte, recvBytes), home: h}
	c.use(s)
	return c, nil
}

func (c *Conn) use(s *Socket) {
	c.sock, c.wire, c.bad = s, s, false
	if c.cfg.Wrap != nil {
		c.wire = c.cfg.Wrap(s)
	}
}

// Close closes the socket.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	return errors.Join(c.sock.Close(), c.home.close())
}

// Port returns the port id of the present socket.
func (c *Conn) Port() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sock.Port()
}

// Dial opens a separate Socket in the same namespace. The caller owns it.
func (c *Conn) Dial(o Options) (*Socket, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	return c.home.dial(o)
}

// ready replaces the socket if the last request left it in an unknown state.
func (c *Conn) ready() error {
	if !c.bad {
		return nil
	}
	s, err := c.Dial(c.cfg.Options)
	if err != nil {
		return fmt.Errorf("reopen a failed socket: %w", err)
	}
	if c.cfg.OnReopen != nil {
		if err := c.cfg.OnReopen(s); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errors.Join(net.ErrClosed, s.Close())
	}
	_ = c.sock.Close() // it has failed already: its error adds no information
	c.use(s)
	return nil
}

// Question is one datagram of requests. Its messages carry sequence numbers from Reserve.
type Question struct {
	First, Last uint32 // the sequence numbers
	Data        [][]byte
}

// Reserve returns the first of n consecutive sequence numbers.
func (c *Conn) Reserve(n int) uint32 {
	c.seq += uint32(n)
	return c.seq - uint32(n) + 1
}

// Ask sends a request and calls take with each message of the answer, until take reports that the answer is complete. It skips
// stale answers to earlier requests.
//
// Netlink answers within Send, and continues a dump within Receive, so Ask never waits: an empty queue means that the rest of the
// answer was lost. Every error is a transport error. With [ErrNoAnswer] a part of the answer was lost; take has then
// received the other parts. The next Ask uses a new socket.
func (c *Conn) Ask(q Question, take func(Message) (done bool)) error {
	if err := c.ready(); err != nil {
		return err
	}
	err := again(func() error { return c.wire.Send(q.Data) })
	if err == nil {
		err = c.answer(q, take)
	}
	c.bad = err != nil
	return err
}

// Tell sends a datagram that the kernel does not answer. The kernel has handled it when Tell returns.
func (c *Conn) Tell(data [][]byte) error {
	if err := c.ready(); err != nil {
		return err
	}
	err := again(func() error { return c.wire.Send(data) })
	c.bad = err != nil
	return err
}

func (c *Conn) answer(q Question, take func(Message) (done bool)) error {
	done, datagram := false, 0
	mine := func(m Message) {
		m.Datagram = datagram
		if m.Seq-q.First <= q.Last-q.First {
			done = take(m) || done
		}
	}
	var lost error
	for losses := 0; losses < maxLosses; {
		n := 0
		err := again(func() (err error) { n, err = c.wire.Receive(c.buf, false); return err })
		switch {
		case err == nil && n <= len(c.buf):
			err = Each(c.buf[:n], mine)
		case err == nil:
			err = fmt.Errorf("a netlink datagram of %d bytes does not fit", n)
		case errors.Is(err, unix.EAGAIN):
			return fmt.Errorf("%w: no data to read", errors.Join(ErrNoAnswer, lost))
		case !errors.Is(err, unix.ENOBUFS): // the messages before and after the loss are still available
			return fmt.Errorf("%w: %w", ErrNoAnswer, err)
		}
		if err != nil {
			lost = err
			losses++
		}
		if done {
			break
		}
		datagram++
	}
	if lost != nil {
		return fmt.Errorf("%w: %w", ErrNoAnswer, lost)
	}
	return nil
}

// again retries a system call while signals interrupt it, at most maxInterrupts times.
func again(call func() error) error {
	err := call()
	for n := 0; n < maxInterrupts && errors.Is(err, unix.EINTR); n++ {
		err = call()
	}
	return err
}
