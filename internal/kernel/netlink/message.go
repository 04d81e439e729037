package netlink

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// HeaderLen is the length of the header of each message.
const HeaderLen = unix.SizeofNlMsghdr

// Message is one received message. Body begins after the header and is valid until the next datagram is read.
type Message struct {
	Type, Flags uint16
	Seq         uint32
	Port        uint32 // of the requesting socket
	Datagram    int    // index of its datagram within the answer
	Body        []byte
}

// Errno returns the error of an NLMSG_ERROR or NLMSG_DONE message; 0 is an acknowledgement.
func (m *Message) Errno() unix.Errno {
	if len(m.Body) < 4 {
		return 0
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(m.Body)))
}

// Each calls f with each message of a datagram. A malformed message is an error: the messages after it cannot be found.
func Each(b []byte, f func(Message)) error {
	for len(b) > 0 {
		n := HeaderLen + 1
		if len(b) >= HeaderLen {
			n = int(binary.NativeEndian.Uint32(b))
		}
		if n < HeaderLen || n > len(b) {
			return fmt.Errorf("a netlink message has a length of %d bytes, but only %d bytes were received", n, len(b))
		}
		f(Message{
			Type: binary.NativeEndian.Uint16(b[4:]), Flags: binary.NativeEndian.Uint16(b[6:]),
			Seq: binary.NativeEndian.Uint32(b[8:]), Port: binary.NativeEndian.Uint32(b[12:]), Body: b[HeaderLen:n],
		})
		b = b[min((n+3)&^3, len(b)):]
	}
	return nil
}
