package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Config says where Open opens its sockets.
type Config struct {
	NetNS int // file descriptor of a network namespace; 0: the calling thread's
}

// Conn is the real Kernel. Its two sockets, one for everything and one for Watch, are bound to one network namespace for life;
// both are opened at once so that neither the file descriptor nor CAP_SYS_ADMIN is needed later.
type Conn struct {
	cmd      *sock
	events   *sock
	watching sync.Mutex
	failed   bool       // the last Watch did, by no wish of ours; guarded by watching
	changing sync.Mutex // of events, once it is open
	head     []byte     // scratch: the messages before and after a batch's own
}

var _ Kernel = (*Conn)(nil)

// Open opens a Conn. It needs CAP_NET_ADMIN over the namespace, and CAP_SYS_ADMIN to enter one given by descriptor.
func Open(cfg Config) (*Conn, error) {
	cmd, err := dial(cfg.NetNS, answerBytes)
	if err != nil {
		return nil, err
	}
	events, err := dial(cfg.NetNS, eventBytes)
	if err != nil {
		return nil, errors.Join(err, cmd.nl.Close())
	}
	return &Conn{cmd: cmd, events: events}, nil
}

// Close closes the sockets; a running Watch ends with an error.
func (c *Conn) Close() error {
	c.changing.Lock()
	defer c.changing.Unlock()
	return errors.Join(c.cmd.nl.Close(), c.events.nl.Close())
}

// reopen gives Watch another socket in place of one that failed, in the namespace of the other one; the calling thread need
// not be in it. Where it is, as it is in an agent, CAP_NET_ADMIN is enough.
func (c *Conn) reopen() error {
	c.changing.Lock() // a Close comes before, and there is no namespace to be asked for, or after, and closes the new one
	defer c.changing.Unlock()
	var ns int
	err := c.cmd.control(func(fd int) (err error) { ns, err = unix.IoctlRetInt(fd, unix.SIOCGSKNS); return err })
	if err != nil {
		return fmt.Errorf("find the network namespace of a socket: %w", err)
	}
	defer func() { _ = unix.Close(ns) }()
	runtime.LockOSThread() // between the look at its namespace and the opening
	defer runtime.UnlockOSThread()
	var its, own unix.Stat_t
	if err := errors.Join(unix.Fstat(ns, &its), unix.Stat("/proc/thread-self/ns/net", &own)); err != nil {
		return fmt.Errorf("compare network namespaces: %w", err)
	}
	enter := ns
	if its.Dev == own.Dev && its.Ino == own.Ino {
		enter = 0
	}
	fresh, err := dial(enter, eventBytes)
	if err != nil {
		return err
	}
	_ = c.events.nl.Close()
	c.events = fresh
	return nil
}

// Generation implements Kernel.
func (c *Conn) Generation(ctx context.Context) (Generation, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	var g Generation
	err := c.request(unix.NFT_MSG_GETGEN, 0, nil, func(m nlmsg) error {
		if m.isNft(unix.NFT_MSG_NEWGEN) {
			g = genOf(m)
		}
		return nil
	})
	if err == nil && g == 0 {
		err = errors.New("no generation in the answer")
	}
	if err != nil {
		return 0, fmt.Errorf("read rule set generation: %w", err)
	}
	return g, nil
}

func genOf(m nlmsg) Generation {
	var g Generation
	eachAttr(m.attrs(), func(typ uint16, d []byte) {
		if typ == unix.NFTA_GEN_ID {
			g = Generation(be32(d))
		}
	})
	return g
}

// request sends one message and hands its answer, one datagram, to f.
func (c *Conn) request(typ, flags uint16, body []byte, f func(nlmsg) error) error {
	seq, err := c.sendRequest(typ, flags, body)
	if err != nil {
		return err
	}
	b, err := c.cmd.recv()
	if err != nil {
		return err
	}
	eachMsg(b, func(m nlmsg) bool {
		switch {
		case m.seq != seq:
			return true
		case m.typ == unix.NLMSG_ERROR && m.errno() != 0:
			err = m.errno()
		case m.typ != unix.NLMSG_ERROR:
			err = f(m)
		}
		return err == nil
	})
	return err
}

// sendRequest sends one nftables message: body is its family byte, the rest of nfgenmsg and the attributes; nil asks for no
// family in particular.
func (c *Conn) sendRequest(typ, flags uint16, body []byte) (uint32, error) {
	if body == nil {
		body = make([]byte, nfgenLen)
	}
	c.cmd.seq++
	b := appendMsgHdr(c.head[:0], nfnlSubsysNft<<8|typ, unix.NLM_F_REQUEST|flags)
	b = append(b, body...)
	c.head = b
	endMsg(b, 0)
	binary.NativeEndian.PutUint32(b[8:], c.cmd.seq)
	return c.cmd.seq, c.cmd.send([][]byte{b})
}
