package ipvs

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// message is one request to the kernel under construction: the netlink header and the body.
type message []byte

// begin starts a message in the buffer of an earlier one.
func begin(b message, typ, flags uint16) message {
	b = append(b[:0], 0, 0, 0, 0) // length, set by exchange
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = binary.NativeEndian.AppendUint16(b, flags|unix.NLM_F_REQUEST)
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0) // sequence number, set by exchange, and port id 0
}

func (m *message) attr(typ uint16, data ...byte) {
	*m = binary.NativeEndian.AppendUint16(*m, uint16(netlink.AttrHeaderLen+len(data)))
	*m = binary.NativeEndian.AppendUint16(*m, typ)
	*m = append(*m, data...)
	for len(*m)%4 != 0 {
		*m = append(*m, 0)
	}
}

func (m *message) u16(typ, v uint16) {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], v)
	m.attr(typ, b[:]...)
}

func (m *message) u32(typ uint16, v uint32) {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	m.attr(typ, b[:]...)
}

// nest begins an attribute that holds others, until the returned function is called.
func (m *message) nest(typ uint16) (end func()) {
	at := len(*m)
	m.attr(typ | unix.NLA_F_NESTED)
	return func() { binary.NativeEndian.PutUint16((*m)[at:], uint16(len(*m)-at)) }
}

// exchange sends a message and calls each with the body of each answer of a type: all answers of a dump, none of a command, one of another
// request. It returns the number of datagrams of the answer, and whether the kernel reports that the list changed during the dump.
func exchange(nl *netlink.Conn, m message, typ uint16, each func(body []byte) error) (datagrams int, moved bool, err error) {
	number := nl.Reserve(1)
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	binary.NativeEndian.PutUint32(m[8:], number)
	single := binary.NativeEndian.Uint16(m[6:])&(unix.NLM_F_DUMP|unix.NLM_F_ACK) == 0
	last := -1
	var answer error
	asked := nl.Ask(netlink.Question{First: number, Last: number, Data: [][]byte{m}}, func(m netlink.Message) (done bool) {
		moved = moved || m.Flags&unix.NLM_F_DUMP_INTR != 0
		switch {
		case m.Type == unix.NLMSG_ERROR, m.Type == unix.NLMSG_DONE:
			if no := m.Errno(); no != 0 {
				answer = no
			}
			return true
		case m.Type != typ:
			return false
		}
		if m.Datagram != last {
			datagrams, last = datagrams+1, m.Datagram
		}
		if answer == nil {
			answer = each(m.Body)
		}
		return single
	})
	return datagrams, moved, errors.Join(asked, answer)
}
