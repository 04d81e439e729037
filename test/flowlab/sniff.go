package flowlab

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Arrivals are the packets of TCP and UDP that have reached the endpoints, by the clock of the kernel. Resets are not among them: when a
// connection has left an endpoint, what that still sends (the acknowledgement that it owes, up to 40 ms later) reaches a client that knows
// of no such connection any more, and the client resets it.
type Arrivals struct {
	mu    sync.Mutex
	stop  func()
	large int // bytes of the largest
	count map[Arrival]int
	last  map[Arrival]time.Time
}

// Arrival names what arrives: protocol number (6, 17) and endpoint.
type Arrival struct {
	Protocol byte
	End      netip.Addr
}

// Sniff counts from now on, until the test ends.
func (l *Lab) Sniff() *Arrivals {
	l.Helper()
	a := &Arrivals{count: map[Arrival]int{}, last: map[Arrival]time.Time{}}
	all := int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}))
	var fd int
	l.In(l.Server, func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, all); err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
		}
		return err
	})
	wait := unix.NsecToTimeval(int64(50 * time.Millisecond)) // how often it looks whether the test is over
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		l.Fatal(err)
	}
	stopped, done := make(chan struct{}), make(chan struct{})
	a.stop = sync.OnceFunc(func() { close(stopped); <-done })
	l.Cleanup(a.stop)
	go func() {
		defer close(done)
		defer unix.Close(fd) //nolint:errcheck // it was only read
		for {
			select {
			case <-stopped:
				return
			default:
				a.next(fd)
			}
		}
	}()
	return a
}

// next takes one packet.
func (a *Arrivals) next(fd int) {
	packet, control := make([]byte, 128), make([]byte, 128)
	length, c, _, from, err := unix.Recvmsg(fd, packet, control, unix.MSG_TRUNC) // the length is that of all of it
	if err != nil {
		return
	}
	if at, is := from.(*unix.SockaddrLinklayer); !is || at.Pkttype != unix.PACKET_HOST {
		return
	}
	var to Arrival
	n, header := min(length, len(packet)), 0
	switch packet = packet[:n]; {
	case n >= 20 && packet[0]>>4 == 4:
		to, header = Arrival{packet[9], netip.AddrFrom4([4]byte(packet[16:20]))}, 20
	case n >= 40 && packet[0]>>4 == 6:
		to, header = Arrival{packet[6], netip.AddrFrom16([16]byte(packet[24:40]))}, 40
	}
	const flags, reset = 13, 1 << 2 // of a header of TCP: where its flags are, and RST
	if to.Protocol == unix.IPPROTO_TCP && n > header+flags && packet[header+flags]&reset != 0 {
		return
	}
	stamps, err := unix.ParseSocketControlMessage(control[:c])
	if err != nil || len(stamps) != 1 || len(stamps[0].Data) < 16 {
		return
	}
	stamp := stamps[0].Data
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count[to]++
	a.large = max(a.large, length)
	a.last[to] = time.Unix(int64(binary.NativeEndian.Uint64(stamp)), int64(binary.NativeEndian.Uint64(stamp[8:])))
}

// Of reports how many packets have reached an endpoint, and when the last one did.
func (a *Arrivals) Of(protocol byte, end string) (count int, last time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := Arrival{protocol, netip.MustParseAddr(end)}
	return a.count[of], a.last[of]
}

// Largest is how many bytes the largest packet had, with its headers of IP.
func (a *Arrivals) Largest() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.large
}

// Stop ends the counting.
func (a *Arrivals) Stop() { a.stop() }
