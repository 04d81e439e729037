package netlab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/test/patience"
)

// Many kernels (this project's CI among them) have SCTP in conntrack and NAT, which is what a Service proxy uses, but no SCTP sockets. So the lab
// implements the first half of the handshake over raw sockets: INIT, answered by INIT ACK, whose state cookie (RFC 9260 section 3.3.3.1) carries the
// echo server's line. These are real SCTP packets: conntrack tracks them and NAT rewrites their checksum.
const (
	protoSCTP     = 132
	chunkInit     = 1
	chunkInitAck  = 2
	chunkAbort    = 6
	paramCookie   = 7
	headerLen     = 12 // common header
	initLen       = 20 // INIT and INIT ACK without parameters
	maxSCTPPacket = 1500
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type sctpPacket struct {
	source, dest uint16
	tag          uint32 // verification tag
	chunk        byte
	initiateTag  uint32
	cookie       string
}

func (p sctpPacket) bytes() []byte {
	b := binary.BigEndian.AppendUint16(nil, p.source)
	b = binary.BigEndian.AppendUint16(b, p.dest)
	b = binary.BigEndian.AppendUint32(b, p.tag)
	b = append(b, 0, 0, 0, 0) // checksum
	chunkAt := len(b)
	b = append(b, p.chunk, 0, 0, 0)
	if p.chunk != chunkAbort {
		b = binary.BigEndian.AppendUint32(b, p.initiateTag)
		b = binary.BigEndian.AppendUint32(b, 65536) // receiver window
		b = append(b, 0, 1, 0, 1)                   // one stream each way
		b = binary.BigEndian.AppendUint32(b, 1)     // initial TSN
	}
	if p.chunk == chunkInitAck {
		b = binary.BigEndian.AppendUint16(b, paramCookie)
		b = binary.BigEndian.AppendUint16(b, uint16(4+len(p.cookie)))
		b = append(b, p.cookie...)
	}
	binary.BigEndian.PutUint16(b[chunkAt+2:], uint16(len(b)-chunkAt))
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, castagnoli)) // RFC 9260 appendix A: least significant byte first
	return b
}

func parseSCTP(b []byte) (p sctpPacket, ok bool) {
	if len(b) < headerLen+4 {
		return p, false
	}
	p = sctpPacket{source: binary.BigEndian.Uint16(b), dest: binary.BigEndian.Uint16(b[2:]), tag: binary.BigEndian.Uint32(b[4:]), chunk: b[headerLen]}
	sum := binary.LittleEndian.Uint32(b[8:])
	zeroed := slices.Clone(b)
	clear(zeroed[8:12])
	if crc32.Checksum(zeroed, castagnoli) != sum {
		return p, false // NAT that does not update the checksum must be visible
	}
	if p.chunk == chunkAbort {
		return p, true
	}
	if len(b) < headerLen+initLen {
		return p, false
	}
	p.initiateTag = binary.BigEndian.Uint32(b[headerLen+4:])
	if rest := b[headerLen+initLen:]; p.chunk == chunkInitAck && len(rest) >= 4 && binary.BigEndian.Uint16(rest) == paramCookie {
		n := int(binary.BigEndian.Uint16(rest[2:]))
		if n < 4 || n > len(rest) {
			return p, false
		}
		p.cookie = string(rest[4:n])
	}
	return p, true
}

func sctpNetwork(ip netip.Addr) string {
	if ip.Is4() {
		return "ip4:132"
	}
	return "ip6:132"
}

// serveSCTP answers INIT on the given ports and sends ABORT on every other, as a kernel with SCTP would.
func (l *Lab) serveSCTP(h *Host, ip netip.Addr, ports []uint16) error {
	var pc *net.IPConn
	err := h.Do(func() (err error) {
		pc, err = net.ListenIP(sctpNetwork(ip), &net.IPAddr{IP: ip.AsSlice()})
		return err
	})
	if err != nil {
		return fmt.Errorf("listen on %s/sctp in %s: %w", ip, h.Name, err)
	}
	l.onClose(pc.Close)
	l.echo.Go(func() {
		buf := make([]byte, maxSCTPPacket)
		for {
			n, from, err := pc.ReadFromIP(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			in, ok := parseSCTP(buf[:n])
			if !ok || in.chunk != chunkInit {
				continue
			}
			out := sctpPacket{source: in.dest, dest: in.source, tag: in.initiateTag, chunk: chunkAbort}
			if slices.Contains(ports, in.dest) {
				seen, _ := netip.AddrFromSlice(from.IP)
				out.chunk, out.initiateTag = chunkInitAck, rand.Uint32()|1
				out.cookie = string(answer(h.Name, netip.AddrPortFrom(seen.Unmap(), in.source).String(), netip.AddrPortFrom(ip, in.dest).String()))
			}
			_, _ = pc.WriteToIP(out.bytes(), from)
		}
	})
	return nil
}

// sctpFlow is one source port and one initiate tag. A further request over it is a retransmitted INIT, which conntrack assigns to the same flow.
type sctpFlow struct {
	h    *Host
	to   netip.AddrPort
	init sctpPacket
}

func (h *Host) sctpFlow(to netip.AddrPort) *sctpFlow {
	return &sctpFlow{h, to, sctpPacket{source: h.nextPort(), dest: to.Port(), chunk: chunkInit, initiateTag: rand.Uint32() | 1}}
}

// ask sends one INIT and waits for its answer. A raw socket's ICMP error does not identify the port, so requests to one address are serialized. The
// wait for the lock does not count against the deadline.
func (f *sctpFlow) ask(ctx context.Context) (line string, own netip.Addr, err error) {
	budget := patience.Of(5 * time.Second)
	if deadline, ok := ctx.Deadline(); ok {
		budget = time.Until(deadline)
	}
	turn, _ := f.h.sctp.LoadOrStore(f.to.Addr(), new(sync.Mutex))
	turn.(*sync.Mutex).Lock()
	defer turn.(*sync.Mutex).Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget)
	defer cancel()
	var conn *net.IPConn
	err = f.h.Do(func() (err error) {
		conn, err = net.DialIP(sctpNetwork(f.to.Addr()), nil, &net.IPAddr{IP: f.to.Addr().AsSlice()})
		return err
	})
	if err != nil {
		return "", own, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	own, _ = netip.AddrFromSlice(conn.LocalAddr().(*net.IPAddr).IP)
	own = own.Unmap()
	if _, err := conn.Write(f.init.bytes()); err != nil && !errors.Is(err, unix.EPERM) { // EPERM: see Flow.exchange
		return "", own, errors.Join(err, ctx.Err()) // closed at the deadline: a timeout, on a busy machine
	}
	line, err = f.receive(conn)
	if err != nil {
		err = errors.Join(err, ctx.Err())
	}
	return line, own, err
}

// receive waits for the packet that answers this flow's INIT.
func (f *sctpFlow) receive(conn *net.IPConn) (string, error) {
	buf := make([]byte, maxSCTPPacket)
	for {
		n, _, err := conn.ReadFromIP(buf)
		if err != nil {
			return "", err
		}
		in, ok := parseSCTP(buf[:n])
		if !ok || in.source != f.to.Port() || in.dest != f.init.source || in.tag != f.init.initiateTag {
			continue
		}
		switch in.chunk {
		case chunkInitAck:
			return in.cookie, nil
		case chunkAbort:
			return "", errAborted
		}
	}
}

var errAborted = errors.New("association aborted")
