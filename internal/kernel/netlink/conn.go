package netlink

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// recvBytes is the size of the reads: the kernel sizes dump messages by the largest one it has seen, up to 32 KiB, and a
	// dump's cost falls with the number of messages because it restarts its walk in each.
	recvBytes = 64 << 10
	// maxInterrupts bounds how often one system call is repeated because a signal came, maxLosses how many losses within one
	// answer are read past.
	maxInterrupts = 100
	maxLosses     = 100
)

// ErrNoAnswer says that the answer to a question, or a part of it, was lost. Whether the kernel did what it was asked is
// unknown.
var ErrNoAnswer = errors.New("the kernel's answer was lost")

// Config configures a Conn.
type Config struct {
	Options
	NetNS int // file descriptor of a network namespace, needed by Open only; 0: the calling thread's
	// Wrap puts something in front of each socket that the Conn opens: Gently, or what a test needs.
	Wrap func(Wire) Wire
	// OnReopen is told of the socket that is about to take the place of one that failed.
	OnReopen func(*Socket) error
}

// Conn asks the kernel, one question at a time, over a socket in one network namespace. All methods but Dial and Close belong
// to one goroutine.
type Conn struct {
	cfg  Config
	wire Wire // sock, or what Wrap made of it
	buf  []byte
	seq  uint32
	bad  bool // the socket has failed, or holds nobody knows what

	mu     sync.Mutex // guards what Dial and Close need
	sock   *Socket
	home   home
	closed bool
}

// Open opens a Conn. It needs CAP_NET_ADMIN over the namespace, and CAP_SYS_ADMIN to enter one given by descriptor.
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

// Port is the port id of the present socket.
func (c *Conn) Port() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sock.Port()
}

// Dial opens a Socket of the caller's own in the same namespace.
func (c *Conn) Dial(o Options) (*Socket, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	return c.home.dial(o)
}

// ready opens another socket if the last question left this one in a state that nobody knows.
func (c *Conn) ready() error {
	if !c.bad {
		return nil
	}
	s, err := c.Dial(c.cfg.Options)
	if err != nil {
		return fmt.Errorf("open another socket in place of one that failed: %w", err)
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
	_ = c.sock.Close() // it has failed: an error says nothing new
	c.use(s)
	return nil
}

// Question is one datagram to send. The caller has numbered its messages with numbers that Reserve gave.
type Question struct {
	First, Last uint32 // the numbers
	Data        [][]byte
}

// Reserve returns the first of n sequence numbers in a row.
func (c *Conn) Reserve(n int) uint32 {
	c.seq += uint32(n)
	return c.seq - uint32(n) + 1
}

// Ask sends a question and hands each message that answers it to take, until take says that the answer is complete. What is
// left in the socket from an earlier question is skipped.
//
// Netlink answers within Send, and goes on with a dump within Receive, so there is never anything to wait for: a socket with
// nothing in it has lost the rest. Any error is about the transport. [ErrNoAnswer] says that something was lost; take has then
// seen what came. The next Ask begins with another socket.
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

// Tell sends a datagram to which the kernel gives no answer. It has worked through it when Tell returns.
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
			return fmt.Errorf("%w: nothing is left to read", errors.Join(ErrNoAnswer, lost))
		case !errors.Is(err, unix.ENOBUFS): // what came before and after the loss is there
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

// again repeats a system call for as long as signals interrupt it.
func again(call func() error) error {
	err := call()
	for n := 0; n < maxInterrupts && errors.Is(err, unix.EINTR); n++ {
		err = call()
	}
	return err
}
