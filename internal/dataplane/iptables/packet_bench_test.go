package iptables

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// BenchmarkFirstPacket connects and resets, on the node itself, so that each
// connection's first packet walks the chains: to the first and the last Service,
// and straight to the endpoint, which must walk past all of them.
func BenchmarkFirstPacket(b *testing.B) {
	for _, backend := range []iptables.Backend{iptables.Legacy, iptables.NFT} {
		for _, n := range []int{100, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", backend, n), func(b *testing.B) { benchPacket(b, backend, n) })
		}
	}
}

func benchPacket(b *testing.B, backend iptables.Backend, n int) {
	ns := ownNetns(b, backend)
	ns.sh(b, "ip link set lo up; ip addr add 10.9.9.9/32 dev lo; ip route add 10.96.0.0/12 dev lo; sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_close=1 || true")
	bed := dataplanetest.NewBed(New(Params{Kernel: ns.Conn, Families: []model.Family{model.IPv4}}), dataplanetest.View())
	bed.Load(b)
	bed.Base()
	end := netip.MustParseAddrPort("10.9.9.9:8080")
	for i := range n {
		fe := benchFrontend(i, 2, 0)
		if i == 0 || i == n-1 {
			fe.Backends = []model.Backend{{Addr: end.Addr(), Port: end.Port(), Weight: 1}}
		}
		bed.Want(dataplanetest.Service(i), fe)
	}
	bed.Sync(b)
	vip := func(i int) netip.AddrPort {
		k := benchFrontend(i, 1, 0).Key
		return netip.AddrPortFrom(k.Addr, k.Port)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- func() error {
			if err := unix.Setns(ns.fd, unix.CLONE_NEWNET); err != nil {
				return err
			}
			for name, to := range map[string]netip.AddrPort{"first": vip(0), "last": vip(n - 1), "direct": end} {
				us, err := connects(end, to)
				if err != nil {
					return fmt.Errorf("%s %s: %w", name, to, err)
				}
				b.ReportMetric(us, "us/"+name)
			}
			return nil
		}()
	}()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op")
}

// connects gives the tenth percentile of rounds of connects, in microseconds.
func connects(listen, to netip.AddrPort) (float64, error) {
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(l)
	_ = unix.SetsockoptInt(l, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err := unix.Bind(l, &unix.SockaddrInet4{Addr: listen.Addr().As4(), Port: int(listen.Port())}); err != nil {
		return 0, err
	}
	if err := unix.Listen(l, 128); err != nil {
		return 0, err
	}
	const rounds, each = 120, 40
	var took []float64
	for range rounds {
		began := time.Now()
		for range each {
			s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			if err != nil {
				return 0, err
			}
			_ = unix.SetsockoptLinger(s, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			err = unix.Connect(s, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
			_ = unix.Close(s)
			if err != nil {
				return 0, err
			}
			if a, _, err := unix.Accept(l); err == nil {
				_ = unix.Close(a)
			}
		}
		took = append(took, float64(time.Since(began).Nanoseconds())/1000/each)
	}
	slices.Sort(took)
	return took[rounds/10], nil
}
