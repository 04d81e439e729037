package link

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Talk is a TCP connection, or a connected UDP socket.
type Talk struct {
	Own, Peer netip.AddrPort
	Protocol  uint8 // IPPROTO_TCP or IPPROTO_UDP
}

// Talks returns the connections of the calling thread's network namespace for which packets may still arrive, of all
// processes: also those that a process has closed, while the kernel delivers their last bytes to the peer. It needs no
// capability, but the kernel's INET_DIAG, which may be a module. Its cost grows with the number of sockets.
func Talks() (out []Talk, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		for _, of := range []struct {
			protocol uint8
			list     func(family uint8) ([]*netlink.Socket, error)
		}{{unix.IPPROTO_TCP, netlink.SocketDiagTCP}, {unix.IPPROTO_UDP, netlink.SocketDiagUDP}} {
			list, err := of.list(family)
			if err != nil {
				return nil, fmt.Errorf("list connections of this network namespace: %w", err)
			}
			for _, s := range list {
				if t, ok := talk(s); ok {
					t.Protocol = of.protocol
					out = append(out, t)
				}
			}
		}
	}
	return out, nil
}

// talk converts a socket; not ok if the socket has no peer, or expects no more packets from it.
func talk(s *netlink.Socket) (t Talk, ok bool) {
	if s.ID.DestinationPort == 0 || s.State == netlink.TCP_TIME_WAIT || s.State == netlink.TCP_CLOSE {
		return t, false
	}
	t.Own, t.Peer = addrPort(s.ID.Source, s.ID.SourcePort), addrPort(s.ID.Destination, s.ID.DestinationPort)
	return t, t.Own.IsValid() && t.Peer.IsValid()
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}
