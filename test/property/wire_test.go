package property

import (
	"encoding/binary"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/test/patience"
)

// wires are two devices of a network namespace. The test writes packets into one, which the node receives, and reads all that the node sends out of
// either. So a packet may come from any source, and no peer has to answer.
type wires struct {
	in, out int
	seq     uint16
	buf     []byte
	known   map[segment]bool // packets that a proxy on the node has sent: it may retransmit them
}

const (
	nodeV4, nodeV6 = "192.168.0.1", "fd00::1"
	wiring         = `set -e
for s in net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0 \
	net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.icmp_ratemask=0 net.ipv6.icmp.ratelimit=0; do sysctl -qw $s; done
ip link set lo up`
	addressing = `set -e
ip link set in up; ip link set out up
ip addr add 192.168.0.1/24 dev in; ip addr add fd00::1/64 dev in nodad
ip route add default dev in; ip route add 10.244.0.0/16 dev out
ip -6 route add default dev in; ip -6 route add fd00::1000/116 dev out
for i in $(seq 400); do # the kernel makes an address of IPv6 its own some time after it has been added
	if ip -6 route get fd00::1 | grep -q ^local; then exit 0; fi; sleep 0.05
done; exit 1`
)

func openWires(t *testing.T) *wires {
	t.Helper()
	script(t, wiring)
	w := &wires{in: tun(t, "in"), out: tun(t, "out"), buf: make([]byte, 4096)}
	script(t, addressing)
	return w
}

func script(t *testing.T, text string) {
	t.Helper()
	if out, err := exec.Command("sh", "-c", text).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", text, err, out)
	}
}

func tun(t *testing.T, name string) int {
	t.Helper()
	f, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { _ = unix.Close(f) })
	var req [40]byte // struct ifreq
	copy(req[:unix.IFNAMSIZ-1], name)
	binary.NativeEndian.PutUint16(req[unix.IFNAMSIZ:], unix.IFF_TUN|unix.IFF_NO_PI)
	if _, _, no := unix.Syscall(unix.SYS_IOCTL, uintptr(f), unix.TUNSETIFF, uintptr(unsafe.Pointer(&req))); no != 0 {
		t.Fatalf("make device %s: %v", name, os.NewSyscallError("ioctl", no))
	}
	return f
}

// Flags of TCP.
const (
	syn = 0x02
	rst = 0x04
	ack = 0x10
)

// segment holds the observed fields of a packet.
type segment struct {
	protocol         byte
	from, to         netip.AddrPort
	refusal, fromOut bool // a reset, or an ICMP error
	flags            byte // of TCP
	seq, ack         uint32
	number           uint16 // of a UDP datagram: its payload; 0: it has none
}

// send writes a packet that begins a connection, then a marker that no program acts on. It returns what the node sent before the marker came out: the
// node handles packets one after the other.
func (w *wires) send(t *testing.T, s segment) []segment {
	t.Helper()
	w.seq++
	mark := segment{protocol: unix.IPPROTO_UDP, from: netip.MustParseAddrPort("192.0.2.200:9"),
		to: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 200, 200}), 20000+w.seq%20000)}
	w.write(t, s)
	w.write(t, mark)
	seen, ok := w.until(func(p segment) bool { return p.to == mark.to && p.from == mark.from })
	if !ok {
		t.Fatal("the packet behind did not come out")
	}
	return slices.DeleteFunc(seen, func(p segment) bool { return p.to.Addr() == mark.to.Addr() })
}

func (w *wires) write(t *testing.T, s segment) {
	t.Helper()
	_, err := unix.Write(w.in, s.bytes())
	check(t, err)
}

// until returns what the node sends, up to and including the awaited packet. It skips repeated answers: a proxy repeats its answer to a client that
// is silent for a second.
func (w *wires) until(awaited func(segment) bool) (seen []segment, ok bool) {
	for end := time.Now().Add(patience.Of(20 * time.Second)); time.Now().Before(end); {
		for _, fd := range []int{w.in, w.out} {
			for {
				n, err := unix.Read(fd, w.buf)
				if err != nil || n <= 0 {
					break
				}
				p, ok := parse(w.buf[:n])
				p.fromOut = fd == w.out
				if again := p.flags == syn|ack && slices.Contains(seen, p); !ok || again || w.known[p] {
					continue
				}
				seen = append(seen, p)
				if awaited(p) {
					return seen, true
				}
			}
		}
		fds := []unix.PollFd{{Fd: int32(w.in), Events: unix.POLLIN}, {Fd: int32(w.out), Events: unix.POLLIN}}
		_, _ = unix.Poll(fds, 100)
	}
	return seen, false
}

// bytes returns the packet.
func (s *segment) bytes() []byte {
	payload := make([]byte, 8, 20) // UDP: ports, length, checksum
	if s.number > 0 {
		payload = binary.BigEndian.AppendUint16(payload, s.number)
	}
	binary.BigEndian.PutUint16(payload[4:], uint16(len(payload)))
	sum := 6
	if s.protocol == unix.IPPROTO_TCP {
		payload, sum = make([]byte, 20), 16
		binary.BigEndian.PutUint32(payload[4:], s.seq)
		binary.BigEndian.PutUint32(payload[8:], s.ack)
		payload[12], payload[13] = 5<<4, s.flags
		binary.BigEndian.PutUint16(payload[14:], 65535)
	}
	binary.BigEndian.PutUint16(payload, s.from.Port())
	binary.BigEndian.PutUint16(payload[2:], s.to.Port())
	src, dst := s.from.Addr().AsSlice(), s.to.Addr().AsSlice()
	pseudo := append(append(append([]byte{}, src...), dst...), 0, s.protocol, 0, byte(len(payload)))
	binary.BigEndian.PutUint16(payload[sum:], checksum(append(pseudo, payload...)))
	if s.to.Addr().Is4() {
		h := make([]byte, 20)
		h[0], h[8], h[9] = 0x45, 64, s.protocol
		binary.BigEndian.PutUint16(h[2:], uint16(20+len(payload)))
		copy(h[12:], src)
		copy(h[16:], dst)
		binary.BigEndian.PutUint16(h[10:], checksum(h))
		return append(h, payload...)
	}
	h := make([]byte, 40)
	h[0], h[6], h[7] = 0x60, s.protocol, 64
	binary.BigEndian.PutUint16(h[4:], uint16(len(payload)))
	copy(h[8:], src)
	copy(h[24:], dst)
	return append(h, payload...)
}

func checksum(b []byte) uint16 {
	sum := uint32(0)
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	if sum == 0xffff {
		return 0xffff // a UDP checksum is never zero
	}
	return ^uint16(sum)
}

// parse parses a packet of TCP or UDP, or an ICMP error. It reports false for others, such as those that IPv6 sends by itself.
func parse(b []byte) (s segment, ok bool) {
	var src, dst netip.Addr
	switch {
	case len(b) >= 28 && b[0]>>4 == 4:
		src, _ = netip.AddrFromSlice(b[12:16])
		dst, _ = netip.AddrFromSlice(b[16:20])
		s.protocol, b = b[9], b[int(b[0]&15)*4:]
	case len(b) >= 48 && b[0]>>4 == 6:
		src, _ = netip.AddrFromSlice(b[8:24])
		dst, _ = netip.AddrFromSlice(b[24:40])
		s.protocol, b = b[6], b[40:]
	default:
		return s, false
	}
	switch s.protocol {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP:
		s.from = netip.AddrPortFrom(src, binary.BigEndian.Uint16(b))
		s.to = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(b[2:]))
		if s.protocol == unix.IPPROTO_TCP && len(b) >= 20 {
			s.seq, s.ack, s.flags = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:]), b[13]
		} else if len(b) >= 10 {
			s.number = binary.BigEndian.Uint16(b[8:])
		}
		s.refusal = s.flags&rst != 0
		return s, true
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		s.from, s.to = netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 0)
		s.refusal = s.protocol == unix.IPPROTO_ICMP && b[0] == 3 || s.protocol == unix.IPPROTO_ICMPV6 && b[0] == 1
		return s, s.refusal
	}
	return s, false
}
