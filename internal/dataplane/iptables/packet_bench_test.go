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
// and straight to the endpoint, which must walk past all of them. Rounds with few
// and with many Services take turns, so that both meet the same busy machine.
func BenchmarkFirstPacket(b *testing.B) {
	for _, backend := range []iptables.Backend{iptables.Legacy, iptables.NFT} {
		b.Run(string(backend), func(b *testing.B) {
			var tracks []*track
			for _, n := range []int{100, 10_000} {
				tracks = append(tracks, packetTracks(b, backend, n)...)
			}
			done := make(chan error)
			go func() {
				runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
				done <- race(tracks)
			}()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
			for _, t := range tracks {
				slices.Sort(t.took)
				b.ReportMetric(t.took[len(t.took)/10], "us/"+t.name)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// track is one destination in one namespace, with the times of its rounds.
type track struct {
	name       string
	ns         int
	listen, to netip.AddrPort
	took       []float64
}

func packetTracks(b *testing.B, backend iptables.Backend, n int) []*track {
	ns := ownNetns(b, backend)
	ns.sh(b, "ip link set lo up; ip addr add 10.9.9.9/32 dev lo; ip route add 10.96.0.0/12 dev lo")
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
	var out []*track
	for name, i := range map[string]int{"first": 0, "last": n - 1, "direct": -1} {
		t := &track{name: fmt.Sprintf("%s-of-%d", name, n), ns: ns.FD(), listen: end, to: end}
		if i >= 0 {
			k := benchFrontend(i, 1, 0).Key
			t.to = netip.AddrPortFrom(k.Addr, k.Port)
		}
		out = append(out, t)
	}
	return out
}

// race runs rounds of all tracks in turn.
func race(tracks []*track) error {
	const rounds = 150
	for range rounds {
		for _, t := range tracks {
			if err := unix.Setns(t.ns, unix.CLONE_NEWNET); err != nil {
				return err
			}
			us, err := connects(t.listen, t.to)
			if err != nil {
				return fmt.Errorf("%s %s: %w", t.name, t.to, err)
			}
			t.took = append(t.took, us)
		}
	}
	return nil
}

// connects is one round: the microseconds of a connection.
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
	const each = 40
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
	return float64(time.Since(began).Nanoseconds()) / 1000 / each, nil
}
