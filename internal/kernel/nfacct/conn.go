package nfacct

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	attributes "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// Names and values of linux/netfilter/nfnetlink_acct.h, which x/sys/unix
// lacks. The high byte of a message's type is NFNL_SUBSYS_ACCT.
const (
	msgNew    = 7 << 8
	msgGet    = 7<<8 | 1
	msgDelete = 7<<8 | 3

	attrName    = 1
	attrPackets = 2
	attrBytes   = 3
)

// nfgenLen is the length of nfnetlink's header, before the attributes.
const nfgenLen = 4

// Config configures a Conn.
type Config struct {
	NetNS int // file descriptor of a network namespace; 0 = the calling thread's
	// Wrap, unless it is nil, wraps each socket. It is for tests.
	Wrap func(netlink.Wire) netlink.Wire
}

// Conn is the Table of the real kernel.
type Conn struct {
	mu sync.Mutex // one request at a time
	nl *netlink.Conn
}

var _ Table = (*Conn)(nil)

// Open returns a Conn. It succeeds also if the kernel lacks the counters:
// Ensure returns ErrUnsupported then.
func Open(c Config) (*Conn, error) {
	nl, err := netlink.Open(netlink.Config{NetNS: c.NetNS, Wrap: c.Wrap})
	if err != nil {
		return nil, fmt.Errorf("open nfacct: %w", err)
	}
	return &Conn{nl: nl}, nil
}

// Close implements Table.
func (c *Conn) Close() error { return c.nl.Close() }

// Ensure implements Table.
func (c *Conn) Ensure(name string) error {
	err := c.ask(msgNew, unix.NLM_F_CREATE|unix.NLM_F_EXCL, name)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("create nfacct counter %s: %w", name, err)
	}
	return nil
}

// Read implements Table. It reads all counters, which are few: the kernel marks the answer to a
// request for one counter as a part of several and sends no end (seen on
// 6.18), so a reader would wait forever.
func (c *Conn) Read(name string) (Count, error) {
	list, err := c.list()
	if err == nil {
		for _, x := range list {
			if x.Name == name {
				return x, nil
			}
		}
		err = ErrNotFound
	}
	return Count{}, fmt.Errorf("read nfacct counter %s: %w", name, err)
}

// Delete implements Table.
func (c *Conn) Delete(name string) error {
	err := c.ask(msgDelete, 0, name)
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		err = ErrInUse
	}
	return fmt.Errorf("delete nfacct counter %s: %w", name, err)
}

// List implements Table.
func (c *Conn) List() ([]Count, error) {
	list, err := c.list()
	if err != nil {
		return nil, fmt.Errorf("list nfacct counters: %w", err)
	}
	return list, nil
}

// ask sends a request about one counter, and waits for its acknowledgement.
func (c *Conn) ask(typ, flags uint16, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	e := attributes.NewAttributeEncoder()
	e.String(attrName, name)
	attrs, err := e.Encode()
	if err == nil {
		err = c.execute(typ, flags|unix.NLM_F_ACK, attrs, func([]byte) error { return nil })
	}
	return err
}

func (c *Conn) list() (list []Count, err error) {
	err = c.execute(msgGet, unix.NLM_F_DUMP, nil, func(attrs []byte) error {
		one, err := decode(attrs)
		list = append(list, one)
		return err
	})
	return list, err
}

// execute sends one request and calls counter with the attributes of each counter in the answer.
func (c *Conn) execute(typ, flags uint16, attrs []byte, counter func(attrs []byte) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	seq := c.nl.Reserve(1)
	var answer error
	err := c.nl.Ask(netlink.Question{First: seq, Last: seq, Data: [][]byte{header(typ, flags, seq, len(attrs)), attrs}}, func(m netlink.Message) bool {
		switch {
		case m.Type == unix.NLMSG_ERROR || m.Type == unix.NLMSG_DONE:
			if no := m.Errno(); no == unix.EINVAL { // nfnetlink's answer for a missing subsystem; the requests of this package are well-formed
				answer = ErrUnsupported
			} else if no != 0 {
				answer = no
			}
			return true
		case m.Type == msgNew && len(m.Body) >= nfgenLen && answer == nil:
			answer = counter(m.Body[nfgenLen:])
		}
		return false
	})
	return errors.Join(err, answer)
}

// header returns the headers of a message with attrs bytes of attributes.
func header(typ, flags uint16, seq uint32, attrs int) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(netlink.HeaderLen+nfgenLen+attrs))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = binary.NativeEndian.AppendUint16(b, flags|unix.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	return append(b, unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0)
}

func decode(attrs []byte) (Count, error) {
	d, err := attributes.NewAttributeDecoder(attrs)
	if err != nil {
		return Count{}, err
	}
	d.ByteOrder = binary.BigEndian
	var x Count
	for d.Next() {
		switch d.Type() {
		case attrName:
			x.Name = d.String()
		case attrPackets:
			x.Packets = d.Uint64()
		case attrBytes:
			x.Bytes = d.Uint64()
		}
	}
	return x, d.Err()
}
