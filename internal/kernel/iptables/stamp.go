package iptables

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watchPeriod is the interval at which Watch reads the stamp. A read costs microseconds.
const watchPeriod = 200 * time.Millisecond

// stamper reads stamps from the kernel. Watch and the engine may call it concurrently.
type stamper interface {
	stamp() (Stamp, error)
	Close() error
}

// Watch implements Kernel.
func (c *Conn) Watch(ctx context.Context, seen func(Stamp)) error {
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	for {
		s, err := c.stamps.stamp()
		if err != nil {
			return err
		}
		seen(s)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// generation reads nf_tables' generation. Polling it is cheaper than a subscription,
// because the kernel sends a listener a message per object of each commit.
type generation struct {
	mu sync.Mutex // one request at a time; an answer takes microseconds
	fd int
}

func openGeneration() (*generation, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	wait := unix.Timeval{Sec: 5}
	if err := errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait), unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})); err != nil {
		return nil, errors.Join(fmt.Errorf("set up a netlink socket: %w", err), unix.Close(fd))
	}
	return &generation{fd: fd}, nil
}

// Close implements stamper.
func (g *generation) Close() error { return unix.Close(g.fd) }

func (g *generation) stamp() (Stamp, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	const header = 20
	var msg [header]byte // nlmsghdr, nfgenmsg
	binary.NativeEndian.PutUint32(msg[0:], header)
	binary.NativeEndian.PutUint16(msg[4:], unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN)
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST)
	if err := unix.Sendto(g.fd, msg[:], 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return Stamp{}, fmt.Errorf("read the nf_tables generation: %w", err)
	}
	var buf [512]byte
	n, _, err := unix.Recvfrom(g.fd, buf[:], 0)
	if err != nil {
		return Stamp{}, fmt.Errorf("read the nf_tables generation: %w", err)
	}
	const attribute = header + 4
	if n >= attribute && binary.NativeEndian.Uint16(buf[4:]) == unix.NLMSG_ERROR {
		e := unix.Errno(-int32(binary.NativeEndian.Uint32(buf[16:])))
		return Stamp{}, fmt.Errorf("read the nf_tables generation: %w", e)
	}
	if n < attribute+4 || binary.NativeEndian.Uint16(buf[header+2:]) != unix.NFTA_GEN_ID {
		return Stamp{}, errors.New("read the nf_tables generation: unexpected reply")
	}
	return Stamp{Generation: binary.BigEndian.Uint32(buf[attribute:])}, nil
}

// nextGeneration returns the generation n commits after g: the kernel skips 0.
func nextGeneration(g uint32, n int) uint32 {
	for range n {
		if g++; g == 0 {
			g = 1
		}
	}
	return g
}
