package iptables

import (
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// cpuTime is that of this process and of the programs it ran.
func cpuTime() time.Duration {
	var sum time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

// benchFrontend is Service i with k endpoints; i's change gives other endpoints.
func benchFrontend(i, k, change int) model.Frontend {
	fe := dataplanetest.ClusterIP(model.IPv4, i, 1)
	fe.Backends = nil
	for j := range k {
		n := uint32(i*k + j + change<<20)
		fe.Backends = append(fe.Backends, model.Backend{Port: 8080, Weight: 1,
			Addr: netip.AddrFrom4([4]byte{10, 128 + byte(n>>16)&127, byte(n >> 8), byte(n)})})
	}
	return fe
}

// BenchmarkScale measures CPU, the programs' included: a whole build, one
// endpoint changed, one Service more, one hundred changed, and a Load.
// FAIRLEAD_BENCH_SERVICES sets the size.
func BenchmarkScale(b *testing.B) { eachBackendAtSize(b, benchScale) }

func eachBackendAtSize(b *testing.B, bench func(b *testing.B, backend iptables.Backend, size int)) {
	size, err := strconv.Atoi(os.Getenv("FAIRLEAD_BENCH_SERVICES"))
	if err != nil {
		size = 1000
	}
	for _, backend := range []iptables.Backend{iptables.Legacy, iptables.NFT} {
		b.Run(string(backend), func(b *testing.B) { bench(b, backend, size) })
	}
}

func benchScale(b *testing.B, backend iptables.Backend, size int) {
	const endpoints = 10
	bed := dataplanetest.NewBed(New(Params{Kernel: ownNetns(b, backend), Families: []model.Family{model.IPv4}}), dataplanetest.View())
	bed.Load(b)
	bed.Base()
	for i := range size {
		bed.Want(dataplanetest.Service(i), benchFrontend(i, endpoints, 0))
	}
	measure := func(what string, n int, do func(i int)) {
		c, w := cpuTime(), time.Now()
		for i := range n {
			do(i)
		}
		b.ReportMetric(float64((cpuTime()-c).Microseconds())/1000/float64(n), "cpu-ms/"+what)
		b.ReportMetric(float64(time.Since(w).Microseconds())/1000/float64(n), "wall-ms/"+what)
	}
	measure("build", 1, func(int) { bed.Sync(b) })
	measure("change", 5, func(i int) {
		bed.Want(dataplanetest.Service(size/2), benchFrontend(size/2, endpoints, i+1))
		bed.Sync(b)
	})
	measure("added", 5, func(i int) {
		bed.Want(dataplanetest.Service(size+i), benchFrontend(size+i, endpoints, 0))
		bed.Sync(b)
	})
	measure("hundred", 2, func(i int) {
		for j := range 100 {
			bed.Want(dataplanetest.Service(j), benchFrontend(j, endpoints, i+1))
		}
		bed.Sync(b)
	})
	measure("load", 2, func(int) {
		if drift := bed.Load(b); len(drift) > 0 {
			b.Errorf("%d objects drifted", len(drift))
		}
	})
	b.ReportMetric(0, "ns/op")
}
