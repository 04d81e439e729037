package iptables

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// watchPeriod is how often Watch looks. A look costs microseconds.
const watchPeriod = 200 * time.Millisecond

// stamper asks the kernel for stamps. Watch and the engine may both ask.
type stamper interface {
	stamp() (Stamp, error)
	Close() error
}

func openStamper(b Backend) (stamper, error) {
	if b == NFT {
		return openGeneration()
	}
	return openSizes()
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

// generation reads nf_tables' generation: polling it is cheaper than to be told,
// because for a listener the kernel writes a message per object of each commit.
type generation struct {
	mu sync.Mutex // one question at a time; an answer takes microseconds
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
		return Stamp{}, fmt.Errorf("ask nf_tables for its generation: %w", err)
	}
	var buf [512]byte
	n, _, err := unix.Recvfrom(g.fd, buf[:], 0)
	if err != nil {
		return Stamp{}, fmt.Errorf("ask nf_tables for its generation: %w", err)
	}
	const attribute = header + 4
	if n >= attribute && binary.NativeEndian.Uint16(buf[4:]) == unix.NLMSG_ERROR {
		e := unix.Errno(-int32(binary.NativeEndian.Uint32(buf[16:])))
		return Stamp{}, fmt.Errorf("ask nf_tables for its generation: %w", e)
	}
	if n < attribute+4 || binary.NativeEndian.Uint16(buf[header+2:]) != unix.NFTA_GEN_ID {
		return Stamp{}, errors.New("ask nf_tables for its generation: unexpected answer")
	}
	return Stamp{Generation: binary.BigEndian.Uint32(buf[attribute:])}, nil
}

// nextGeneration is the generation n commits after g: the kernel skips 0.
func nextGeneration(g uint32, n int) uint32 {
	for range n {
		if g++; g == 0 {
			g = 1
		}
	}
	return g
}

// sizes asks x_tables for the head of each table (IPT_SO_GET_INFO).
type sizes struct{ v4, v6 int }

func openSizes() (*sizes, error) {
	s := &sizes{v4: -1, v6: -1}
	var err4, err6 error
	s.v4, err4 = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	s.v6, err6 = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err4 != nil && err6 != nil {
		return nil, fmt.Errorf("open a raw socket: %w", err4)
	}
	return s, nil
}

// Close implements stamper.
func (s *sizes) Close() error {
	var errs []error
	for _, fd := range []int{s.v4, s.v6} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

func (s *sizes) stamp() (Stamp, error) {
	var out Stamp
	for i, q := range [...]struct {
		fd, level int
		table     string
	}{{s.v4, unix.SOL_IP, "nat"}, {s.v4, unix.SOL_IP, "filter"}, {s.v4, unix.SOL_IP, "mangle"}, {s.v6, unix.SOL_IPV6, "nat"}, {s.v6, unix.SOL_IPV6, "filter"}} {
		if q.fd < 0 {
			continue
		}
		t, err := tableHead(q.fd, q.level, q.table)
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOPROTOOPT) { // no such table: nothing there
			return Stamp{}, fmt.Errorf("ask x_tables for table %s: %w", q.table, err)
		}
		out.Tables[i] = t
	}
	return out, nil
}

// getInfo is IPT_SO_GET_INFO and IP6T_SO_GET_INFO.
const getInfo = 64

// tableHead fills struct ipt_getinfo: name, hooks, 5 entry points, 5 underflows,
// number of entries, size.
func tableHead(fd, level int, table string) (TableStamp, error) {
	var info struct {
		name   [32]byte
		places [11]uint32
		n      uint32
		size   uint32
	}
	copy(info.name[:], table)
	l := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), getInfo,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&l)), 0)
	if errno != 0 {
		return TableStamp{}, errno
	}
	var b []byte
	for _, p := range info.places {
		b = binary.NativeEndian.AppendUint32(b, p)
	}
	return TableStamp{Entries: info.n, Size: info.size, Places: crc32.ChecksumIEEE(b)}, nil
}
