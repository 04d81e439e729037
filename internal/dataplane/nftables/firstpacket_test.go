package nftables

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/model"
)

// BenchmarkFirstPacket is the time of a sendto that opens a UDP flow from this node
// to a Service: lookup, draw, translation, delivery. The tenth percentile, which a
// busy machine moves least; it must not depend on how many Services there are.
func BenchmarkFirstPacket(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchFirstPacket(b, n, 0) })
	}
	b.Run("1000 with affinity", func(b *testing.B) { benchFirstPacket(b, 1_000, time.Hour) })
}

func benchFirstPacket(b *testing.B, n int, affinity time.Duration) {
	ns := ownNetns(b)
	for _, args := range []string{"link set lo up", "addr add 192.0.2.1/32 dev lo", "route add 10.0.0.0/8 dev lo src 192.0.2.1", "route add local 172.16.0.0/12 dev lo"} {
		if out, err := exec.Command("sh", "-c", "ip "+args).CombinedOutput(); err != nil {
			b.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	bed := dataplanetest.NewBed(New(Params{Kernel: ns}), dataplanetest.View())
	bed.Load(b)
	bed.Base()
	vips := make([]netip.Addr, 0, n)
	for i := range n {
		fe := benchFrontend(i, benchEndpoints)
		fe.Key.Protocol, fe.AffinityTimeout = model.UDP, affinity
		vips = append(vips, fe.Key.Addr)
		bed.Want(dataplanetest.Service(i), fe)
	}
	bed.Sync(b)
	took := make([]time.Duration, 0, 1<<16)
	for i := 0; b.Loop(); i++ {
		took = append(took, firstPacket(b, vips[i*7919%n]))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/10].Nanoseconds())/1000, "p10-us")
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-us")
}

// firstPacket sends one datagram from a port of its own.
func firstPacket(b *testing.B, to netip.Addr) time.Duration {
	b.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte(net.IPv4(192, 0, 2, 1).To4())}); err != nil {
		b.Fatal(err)
	}
	t0 := time.Now()
	if err := unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet4{Port: 80, Addr: to.As4()}); err != nil {
		b.Fatal(err)
	}
	return time.Since(t0)
}
