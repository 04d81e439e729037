package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/model"
)

// endpoints per Service in every benchmark.
const benchEndpoints = 10

var benchSizes = []int{1_000, 10_000, 50_000}

// cpuTime is what this process used, kernel work done for it included.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchFrontend is Service i of many: addresses of a /8, so that there is room.
func benchFrontend(i, n int) model.Frontend {
	fe := dataplanetest.ClusterIP(model.IPv4, 0, 0)
	fe.Service = dataplanetest.Service(i)
	fe.Key.Addr = netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
	fe.Verdict, fe.Backends = model.Forward, make([]model.Backend, 0, n)
	for j := range n {
		k := i*benchEndpoints + j
		fe.Backends = append(fe.Backends, model.Backend{
			Addr: netip.AddrFrom4([4]byte{172, byte(16 + k>>16), byte(k >> 8), byte(k)}), Port: 8080, Weight: 1})
	}
	return fe
}

// benchBed returns a bed with n desired Services, of which none is written.
func benchBed(b *testing.B, d *Driver, n int) *dataplanetest.Bed {
	bed := dataplanetest.NewBed(d, dataplanetest.View())
	bed.Load(b)
	bed.Base()
	for i := range n {
		bed.Want(dataplanetest.Service(i), benchFrontend(i, benchEndpoints))
	}
	return bed
}

// report adds CPU time per operation, which a busy machine does not inflate as
// it does wall time.
func report(b *testing.B, used time.Duration) {
	b.ReportMetric(float64(used.Microseconds())/float64(b.N)/1000, "cpu-ms/op")
}

func BenchmarkFullBuild(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ns := ownNetns(b)
			var used time.Duration
			for range b.N {
				b.StopTimer()
				d := New(Params{Kernel: ns})
				if err := d.Cleanup(b.Context()); err != nil {
					b.Fatal(err)
				}
				runtime.GC()
				start := cpuTime()
				b.StartTimer()
				benchBed(b, d, n).Sync(b)
				used += cpuTime() - start
			}
			report(b, used)
		})
	}
}

// BenchmarkApplyOnly leaves out rendering and the diff.
func BenchmarkApplyOnly(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ns := ownNetns(b)
			var used time.Duration
			for range b.N {
				b.StopTimer()
				d := New(Params{Kernel: ns})
				if err := d.Cleanup(b.Context()); err != nil {
					b.Fatal(err)
				}
				bed := benchBed(b, d, n)
				diffs := bed.Pending()
				runtime.GC()
				start := cpuTime()
				b.StartTimer()
				if _, err := bed.Apply(b.Context(), diffs); err != nil {
					b.Fatal(err)
				}
				used += cpuTime() - start
			}
			report(b, used)
		})
	}
}

// benchChange measures one Service going back and forth between two sizes.
func benchChange(b *testing.B, from, to int, change func(fe *model.Frontend, i int)) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			bed := benchBed(b, New(Params{Kernel: ownNetns(b)}), n)
			bed.Sync(b)
			key := dataplanetest.Service(n / 2)
			runtime.GC()
			start := cpuTime()
			for i := 0; b.Loop(); i++ {
				size := from
				if i%2 == 0 {
					size = to
				}
				fe := benchFrontend(n/2, size)
				change(&fe, i)
				bed.Want(key, fe)
				bed.Sync(b)
			}
			report(b, cpuTime()-start)
		})
	}
}

func BenchmarkOneEndpointReplaced(b *testing.B) {
	benchChange(b, benchEndpoints, benchEndpoints, func(fe *model.Frontend, i int) { fe.Backends[4].Port = uint16(9000 + i%1000) })
}

func BenchmarkOneEndpointLess(b *testing.B) {
	benchChange(b, benchEndpoints, benchEndpoints-1, func(*model.Frontend, int) {})
}

func BenchmarkClassChange(b *testing.B) { benchChange(b, 9, 8, func(*model.Frontend, int) {}) }

func BenchmarkHundredServices(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			bed := benchBed(b, New(Params{Kernel: ownNetns(b)}), n)
			bed.Sync(b)
			runtime.GC()
			start := cpuTime()
			for i := 0; b.Loop(); i++ {
				for s := range 100 {
					fe := benchFrontend(s*(n/100), benchEndpoints)
					fe.Backends[3].Port = uint16(9000 + i%1000)
					bed.Want(dataplanetest.Service(s*(n/100)), fe)
				}
				bed.Sync(b)
			}
			report(b, cpuTime()-start)
		})
	}
}

// BenchmarkLoad is the audit: everything read back and compared.
func BenchmarkLoad(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			bed := benchBed(b, New(Params{Kernel: ownNetns(b)}), n)
			bed.Sync(b)
			runtime.GC()
			start := cpuTime()
			for b.Loop() {
				if drift := bed.Load(b); len(drift) > 0 {
					b.Fatalf("%d objects differ", len(drift))
				}
			}
			report(b, cpuTime()-start)
		})
	}
}

// BenchmarkRestart measures the start of a new process whose desired state is already
// in the kernel.
func BenchmarkRestart(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ns := ownNetns(b)
			benchBed(b, New(Params{Kernel: ns}), n).Sync(b)
			runtime.GC()
			start := cpuTime()
			for b.Loop() {
				if left := benchBed(b, New(Params{Kernel: ns}), n).Pending(); len(left) > 0 {
					b.Fatalf("%d objects to write", len(left))
				}
			}
			report(b, cpuTime()-start)
		})
	}
}

// BenchmarkForeignCommit measures the cost, for an idle agent, of one commit of another
// program to its own table, without and with a Watch. The other program's CPU time is
// left out, that of its timer is not.
func BenchmarkForeignCommit(b *testing.B) {
	for _, watched := range []bool{false, true} {
		b.Run(fmt.Sprintf("watched=%v", watched), func(b *testing.B) { foreignCommits(b, watched) })
	}
}

func foreignCommits(b *testing.B, watched bool) {
	ns := ownNetns(b)
	other, d := ns.neighbour(b), New(Params{Kernel: ns})
	benchBed(b, d, 1000).Sync(b)
	ctx, stop := context.WithCancel(b.Context())
	ended, rung := make(chan error, 1), 0
	if watched {
		go func() { ended <- d.Watch(ctx, func() { rung++ }) }()
	} else {
		ended <- nil
	}
	start, mine := cpuTime(), threadTime(b) // ownNetns has locked this goroutine to its thread
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for b.Loop() {
		<-tick.C
		dataplanetest.Touch(b, other)
	}
	b.ReportMetric(float64((cpuTime()-start-(threadTime(b)-mine)).Microseconds())/float64(b.N), "cpu-us/op")
	stop()
	if err := <-ended; err != nil || rung > 1 { // once, if a write came before the subscription
		b.Fatal(err, rung)
	}
}

func threadTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
