package nfacct

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Names and values of linux/netfilter/nfnetlink_acct.h; x/sys/unix has none of
// them. The high byte of a message's type is NFNL_SUBSYS_ACCT.
const (
	msgNew    netlink.HeaderType = 7 << 8
	msgGet    netlink.HeaderType = 7<<8 | 1
	msgDelete netlink.HeaderType = 7<<8 | 3

	attrName    = 1
	attrPackets = 2
	attrBytes   = 3
)

// nfgenLen is the header of nfnetlink, before the attributes.
const nfgenLen = 4

// Config configures a Conn.
type Config struct {
	NetNS int // file descriptor of a network namespace; 0 = the calling thread's
}

// Conn is the real Table.
type Conn struct{ nl *netlink.Conn }

var _ Table = (*Conn)(nil)

// Open opens a netlink socket. The kernel may lack the counters all the same:
// Ensure tells.
func Open(c Config) (*Conn, error) {
	nl, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: c.NetNS})
	if err != nil {
		return nil, fmt.Errorf("open nfacct socket: %w", err)
	}
	return &Conn{nl}, nil
}

// Close implements Table.
func (c *Conn) Close() error { return c.nl.Close() }

// Ensure implements Table.
func (c *Conn) Ensure(name string) error {
	err := c.ask(msgNew, netlink.Create|netlink.Excl, name)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("create nfacct counter %s: %w", name, err)
	}
	return nil
}

// Read implements Table. It reads all counters, which are few: the answer to a
// question about one is marked as part of several and ends with nothing (seen on
// 6.18), so that a reader would wait for ever.
func (c *Conn) Read(name string) (Count, error) {
	list, err := c.execute(msgGet, netlink.Dump, nil)
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
	list, err := c.execute(msgGet, netlink.Dump, nil)
	if err != nil {
		return nil, fmt.Errorf("list nfacct counters: %w", err)
	}
	return list, nil
}

// ask sends a message about one counter, and waits until it is acknowledged.
func (c *Conn) ask(typ netlink.HeaderType, flags netlink.HeaderFlags, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	e := netlink.NewAttributeEncoder()
	e.String(attrName, name)
	attrs, err := e.Encode()
	if err == nil {
		_, err = c.execute(typ, flags|netlink.Acknowledge, attrs)
	}
	return err
}

func (c *Conn) execute(typ netlink.HeaderType, flags netlink.HeaderFlags, attrs []byte) ([]Count, error) {
	answers, err := c.nl.Execute(netlink.Message{
		Header: netlink.Header{Type: typ, Flags: netlink.Request | flags},
		Data:   append([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0}, attrs...),
	})
	if errors.Is(err, unix.EINVAL) { // nfnetlink's answer for a part that is not there; our requests are well-formed
		return nil, ErrUnsupported
	}
	if err != nil {
		return nil, err
	}
	var list []Count
	for _, m := range answers {
		if m.Header.Type != msgNew || len(m.Data) < nfgenLen {
			continue // the acknowledgement
		}
		one, err := decode(m.Data[nfgenLen:])
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

func decode(attrs []byte) (Count, error) {
	d, err := netlink.NewAttributeDecoder(attrs)
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
