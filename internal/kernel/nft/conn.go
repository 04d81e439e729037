package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// answerBytes is the receive buffer of the socket for everything but Watch.
const answerBytes = 1 << 20

// Config configures a Conn.
type Config struct {
	NetNS int // file descriptor of a network namespace; 0: the calling thread's
	// WrapCommands and WrapEvents, unless they are nil, wrap each socket for everything but Watch, and each socket of Watch:
	// netlink.Gently, or a wrapper of a test.
	WrapCommands, WrapEvents func(netlink.Wire) netlink.Wire
}

// Conn is the Kernel that talks to the real kernel. Its sockets, one for everything and one for Watch, stay in one network
// namespace. A failed socket is replaced, on whichever thread the failure is detected.
type Conn struct {
	cmd      *netlink.Conn
	watching sync.Mutex
	failed   bool       // the last Watch failed, other than by its ctx; guarded by watching
	head     []byte     // scratch: the messages before and after a batch's own
	inPlace  Generation // the last generation that is completely applied; 0: none yet
	wrap     func(netlink.Wire) netlink.Wire

	changing sync.Mutex // guards the fields below
	events   *netlink.Socket
	own      uint32 // the port of cmd's socket: Watch drops the notifications of its commits
}

var _ Kernel = (*Conn)(nil)

// Open returns a Conn. It needs CAP_NET_ADMIN over the namespace, and CAP_SYS_ADMIN to enter a namespace passed by descriptor.
func Open(cfg Config) (*Conn, error) {
	c := &Conn{wrap: cfg.WrapEvents}
	if c.wrap == nil {
		c.wrap = func(w netlink.Wire) netlink.Wire { return w }
	}
	var err error
	c.cmd, err = netlink.Open(netlink.Config{
		NetNS: cfg.NetNS, Wrap: cfg.WrapCommands, OnReopen: c.reopened,
		Options: netlink.Options{ReceiveBuffer: answerBytes, ExtendedErrors: true},
	})
	if err != nil {
		return nil, err
	}
	c.own = c.cmd.Port()
	if c.events, err = c.cmd.Dial(eventOptions()); err != nil {
		return nil, errors.Join(err, c.cmd.Close())
	}
	return c, nil
}

// Close closes the sockets; a running Watch ends with an error.
func (c *Conn) Close() error {
	err := c.cmd.Close() // from here on no socket is reopened
	c.changing.Lock()
	defer c.changing.Unlock()
	return errors.Join(err, c.events.Close())
}

// reopened is called with the socket that replaces cmd's.
func (c *Conn) reopened(s *netlink.Socket) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	c.own = s.Port()
	// If this fails, the socket for events has failed too, and the next Watch sets the filter on a new one.
	_ = c.events.DropFrom(c.own)
	return nil
}

// Generation implements Kernel.
func (c *Conn) Generation(ctx context.Context) (Generation, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := c.settle(); err != nil {
		return 0, err
	}
	return c.present()
}

// present returns the generation, possibly that of a commit still in progress.
func (c *Conn) present() (g Generation, _ error) {
	err := c.request(unix.NFT_MSG_GETGEN, 0, nil, func(m nlmsg) error {
		if m.isNft(unix.NFT_MSG_NEWGEN) {
			g = genOf(m)
		}
		return nil
	})
	if err == nil && g == 0 {
		err = errors.New("no generation in the reply")
	}
	if err != nil {
		return 0, fmt.Errorf("read rule set generation: %w", err)
	}
	return g, nil
}

func (c *Conn) settle() error {
	if err := c.cmd.Settle(); err != nil {
		return fmt.Errorf("wait for the end of a commit: %w", err)
	}
	return nil
}

func genOf(m nlmsg) Generation {
	var g Generation
	netlink.EachAttr(m.attrs(), func(typ uint16, d []byte) {
		if typ == unix.NFTA_GEN_ID {
			g = Generation(be32(d))
		}
	})
	return g
}

// request sends one message and calls f with its answer, one message.
func (c *Conn) request(typ, flags uint16, body []byte, f func(nlmsg) error) error {
	var answer error
	err := c.cmd.Ask(c.question(typ, flags, body), func(m netlink.Message) bool {
		if e := m.Errno(); m.Type == unix.NLMSG_ERROR {
			if e != 0 {
				answer = e
			}
		} else {
			answer = f(nlmsg{m})
		}
		return true
	})
	return errors.Join(err, answer)
}

// question returns a request of one nftables message: body is its family byte, the rest of nfgenmsg and the attributes; nil means
// an unspecified family.
func (c *Conn) question(typ, flags uint16, body []byte) netlink.Question {
	seq := c.cmd.Reserve(1)
	c.head = appendQuestion(c.head[:0], typ, flags, body)
	binary.NativeEndian.PutUint32(c.head[8:], seq)
	return netlink.Question{First: seq, Last: seq, Data: [][]byte{c.head}}
}

func appendQuestion(b []byte, typ, flags uint16, body []byte) []byte {
	off := len(b)
	b = appendMsgHdr(b, nfnlSubsysNft<<8|typ, unix.NLM_F_REQUEST|flags)
	if body == nil {
		b = append(b, 0, 0, 0, 0)
	}
	b = append(b, body...)
	endMsg(b, off)
	return b
}
