package iptables

import (
	"context"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// BenchmarkSurvey measures what one reading of everything costs beside what iptables-save takes to print it to
// nobody. FAIRLEAD_BENCH_SERVICES sets the size.
func BenchmarkSurvey(b *testing.B) { eachBackendAtSize(b, benchSurvey) }

// benchBuilt has so many Services in the kernel, and reads it without the programs.
func benchBuilt(b *testing.B, p Params, size, endpoints int) (*Driver, *dataplanetest.Bed) {
	b.Helper()
	driver := New(p)
	if caps, err := driver.Probe(b.Context()); err != nil || len(caps.Notes) > 0 {
		b.Fatalf("probe: %q, %v", caps.Notes, err)
	}
	bed := dataplanetest.NewBed(driver, dataplanetest.View())
	bed.Load(b)
	bed.Base()
	for i := range size {
		bed.Want(dataplanetest.Service(i), benchFrontend(i, endpoints, 0))
	}
	bed.Sync(b)
	return driver, bed
}

func benchSurvey(b *testing.B, backend iptables.Backend, size int) {
	const endpoints = 10
	n := ownNetns(b, backend)
	driver, _ := benchBuilt(b, Params{Kernel: n, Families: []model.Family{model.IPv4, model.IPv6}}, size, endpoints)
	b.ResetTimer()
	for range b.N {
		measure := func(what string, do func()) {
			self, programs, began := cpuOf(b, unix.RUSAGE_SELF), cpuOf(b, unix.RUSAGE_CHILDREN), time.Now()
			do()
			b.ReportMetric(ms(time.Since(began)), "wall-ms/"+what)
			b.ReportMetric(ms(cpuOf(b, unix.RUSAGE_SELF)-self), "own-ms/"+what)
			b.ReportMetric(ms(cpuOf(b, unix.RUSAGE_CHILDREN)-programs), "programs-ms/"+what)
		}
		measure("iptables-save", func() { n.sh(b, "$IPT-save >/dev/null; $IP6T-save >/dev/null") })
		objects := 0
		survey := func() {
			objects = 0
			if err := driver.Survey(context.Background(), func(dataplane.Key, string) { objects++ }); err != nil {
				b.Fatal(err)
			}
		}
		driver.memory = memory{}
		measure("survey", survey)
		measure("survey-again", survey)
		if backend == iptables.NFT {
			n.sh(b, "$IPT -t nat -N CNI-A; $IPT -t nat -A CNI-A -j ACCEPT; $IPT -t nat -A POSTROUTING -s 10.1.1.1 -j CNI-A")
			measure("survey-after-stranger", survey)
			n.sh(b, "$IPT -t nat -D POSTROUTING -s 10.1.1.1 -j CNI-A; $IPT -t nat -F CNI-A; $IPT -t nat -X CNI-A")
		}
		b.ReportMetric(float64(objects), "objects")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkChangeBesideSurvey measures how long a change of one endpoint takes alone, and while everything is read beside
// it, in turn: medians and the ninth of ten.
func BenchmarkChangeBesideSurvey(b *testing.B) { eachBackendAtSize(b, benchBeside) }

func benchBeside(b *testing.B, backend iptables.Backend, size int) {
	const endpoints, pairs = 10, 24
	const under = 5000 // rules read: then a Survey is well under way
	lines := make(chan struct{}, 1)
	driver, bed := benchBuilt(b, Params{Kernel: counted{ownNetns(b, backend), under, lines}, Families: []model.Family{model.IPv4}}, size, endpoints)
	took := map[string][]time.Duration{}
	change := func(what string, n int) {
		bed.Want(dataplanetest.Service(size/2), benchFrontend(size/2, endpoints, n))
		began := time.Now()
		bed.Sync(b)
		took[what] = append(took[what], time.Since(began))
	}
	b.ResetTimer()
	for i := range pairs * b.N {
		change("alone", 2*i+1)
		over := make(chan error, 1)
		driver.memory = memory{}
		go func() { over <- driver.Survey(context.Background(), func(dataplane.Key, string) {}) }()
		select {
		case <-lines:
		case err := <-over:
			b.Fatalf("a Survey of %d Services ended before %d rules were read (%v): there are too few (FAIRLEAD_BENCH_SERVICES)", size, under, err)
		}
		change("beside", 2*i+2)
		if err := <-over; err != nil {
			b.Fatal(err)
		}
	}
	for what, list := range took {
		slices.Sort(list)
		b.ReportMetric(ms(list[len(list)/2]), "median-ms/"+what)
		b.ReportMetric(ms(list[len(list)*9/10]), "p90-ms/"+what)
	}
	b.ReportMetric(0, "ns/op")
}

// counted is a Kernel that tells when so many lines of a table were read.
type counted struct {
	iptables.Kernel
	under int
	lines chan<- struct{}
}

func (k counted) Read(ctx context.Context, r iptables.Reading, emit func([]byte) error) error {
	n := 0
	return k.Kernel.Read(ctx, r, func(line []byte) error {
		if n++; n == k.under && r.Table == nat.String() && r.Same != nil { // of a Survey
			k.lines <- struct{}{}
		}
		return emit(line)
	})
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func cpuOf(b *testing.B, who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
