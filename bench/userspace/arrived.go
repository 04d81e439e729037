package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// gauge counts the SYNs that arrive for a port at an interface of another process's network
// namespace: the number that a generator reports as sent may differ from the number that
// arrived.
type gauge struct{ fd int }

// newGauge needs CAP_NET_RAW in that namespace, and CAP_SYS_ADMIN to enter it.
func newGauge(pid int, device string, port uint16) (g *gauge, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		g, err = gaugeThere(pid, device, port)
	}()
	<-done
	return g, err
}

func gaugeThere(pid int, device string, port uint16) (*gauge, error) {
	ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(ns) //nolint:errcheck // it was read only
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("go to the network namespace of process %d: %w", pid, err)
	}
	link, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", device, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	program := synsFor(port)
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	if err == nil {
		ip := binary.NativeEndian.Uint16([]byte{unix.ETH_P_IP >> 8, unix.ETH_P_IP & 0xff})
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: ip, Ifindex: link.Index})
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("watch %s: %w", device, err)
	}
	return &gauge{fd}, nil
}

// synsFor returns a filter that keeps one byte of each IPv4 packet that opens a TCP
// connection to a port.
func synsFor(port uint16) []unix.SockFilter {
	const skip = 8
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 9},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.IPPROTO_TCP, Jf: skip - 1},
		{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: 0}, // where TCP begins
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_IND, K: 2},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(port), Jf: skip - 4},
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_IND, K: 13},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0x12},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 0x02, Jf: skip - 7}, // SYN without ACK
		{Code: unix.BPF_RET | unix.BPF_K, K: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
}

// since returns how many SYNs have arrived since its last call. No program reads the
// socket, so that the largest part is counted as dropped from it: that is cheaper.
func (g *gauge) since() (int, error) {
	s, err := unix.GetsockoptTpacketStats(g.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("read what has arrived: %w", err)
	}
	return int(s.Packets), nil
}

func (g *gauge) close() { _ = unix.Close(g.fd) }

// cookies returns how many connections a process's network namespace has answered with a
// cookie because its queue of half-open connections was full.
func cookies(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/netstat", pid))
	lines := strings.Split(string(text), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		values := strings.Fields(lines[i+1])
		for n, name := range strings.Fields(lines[i]) {
			if name == "SyncookiesSent" && n < len(values) {
				out, _ := strconv.Atoi(values[n])
				return out
			}
		}
	}
	return 0
}
