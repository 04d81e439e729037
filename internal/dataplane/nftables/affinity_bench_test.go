package nftables

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/model"
)

// manyClients is what one popular Service has.
const manyClients = 200_000

// BenchmarkManyClients measures what happens on a node whose one sticky Service has
// 200 000 clients: to that Service, to another, and to the table.
func BenchmarkManyClients(b *testing.B) {
	ns := ownNetns(b)
	bed := benchBed(b, New(Params{Kernel: ns, Families: []model.Family{model.IPv4}}), 1_000)
	popular := sticky(model.IPv4, model.ClusterIP, 8)
	popular.Service = model.ServiceKey{Namespace: "popular", Name: "web"}
	bed.Want(popular.Service, popular)
	bed.Sync(b)
	remember(b, ns, &popular, manyClients)
	bed.Load(b)
	all := popular.Backends
	for _, c := range []struct {
		name string
		do   func(i int)
	}{
		{"endpoint leaves or comes back", func(i int) {
			popular.Backends = all[:8-i%2]
			bed.Want(popular.Service, popular)
			bed.Sync(b)
		}},
		{"class changes", func(i int) {
			popular.Backends = all[:5-i%2]
			bed.Want(popular.Service, popular)
			bed.Sync(b)
			bed.Now = bed.Now.Add(time.Minute)
			bed.Track.Expire(bed.Now)
			bed.Sync(b)
		}},
		{"another Service", func(i int) {
			bed.Want(dataplanetest.Service(7), benchFrontend(7, 9+i%2))
			bed.Sync(b)
		}},
		{"endpoint leaves or comes back, and another Service with it", func(i int) {
			popular.Backends = all[:8-i%2]
			bed.Want(popular.Service, popular)
			bed.Want(dataplanetest.Service(7), benchFrontend(7, 9+i%2))
			bed.Sync(b)
		}},
		{"from 3 000 to 3 100 endpoints elsewhere, or back", func(i int) {
			bed.Want(dataplanetest.Service(8), benchFrontend(8, 3_000+i%2*100))
			bed.Sync(b)
		}},
		{"Load", func(int) { bed.Load(b) }},
		{"rebuild", func(int) {
			if _, err := bed.Anew(b.Context(), model.IPv4); err != nil {
				b.Fatal(err)
			}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			start := cpuTime()
			for i := 0; b.Loop(); i++ {
				c.do(i)
			}
			report(b, cpuTime()-start)
		})
	}
	if n := len(rememberedBy(b, ns, &popular, manyClients)); n != manyClients {
		b.Errorf("%d clients are left", n)
	}
	b.Run("switched off and on", func(b *testing.B) { benchOffAndOn(b, ns, bed, &popular) })
}

// benchOffAndOn measures what it costs to switch affinity off with all its clients.
func benchOffAndOn(b *testing.B, ns *netns, bed *dataplanetest.Bed, popular *model.Frontend) {
	var used, took time.Duration
	off := func() {
		popular.AffinityTimeout = 0
		bed.Want(popular.Service, *popular)
	}
	off()
	bed.Sync(b)
	for range b.N {
		b.StopTimer()
		popular.AffinityTimeout = time.Hour
		bed.Want(popular.Service, *popular)
		bed.Sync(b)
		remember(b, ns, popular, manyClients)
		bed.Load(b)
		off()
		start, t0 := cpuTime(), time.Now()
		b.StartTimer()
		bed.Sync(b)
		used, took = used+cpuTime()-start, took+time.Since(t0)
	}
	report(b, used)
	b.ReportMetric(float64(took.Microseconds())/float64(b.N)/1000, "ms/off")
}

// BenchmarkStickyServices measures many sticky Services: each has a map and chains of
// its own, and the kernel finds a set by its name in a list.
func BenchmarkStickyServices(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		ns := ownNetns(b)
		build := func() *dataplanetest.Bed {
			bed := dataplanetest.NewBed(New(Params{Kernel: ns, Families: []model.Family{model.IPv4}}), dataplanetest.View())
			bed.Load(b)
			bed.Base()
			for i := range n {
				fe := benchFrontend(i, benchEndpoints)
				fe.AffinityTimeout = 3 * time.Hour
				bed.Want(fe.Service, fe)
			}
			return bed
		}
		var bed *dataplanetest.Bed
		for _, c := range []struct {
			name string
			do   func(b *testing.B, i int)
		}{
			{"build", func(b *testing.B, _ int) {
				b.StopTimer()
				if err := New(Params{Kernel: ns}).Cleanup(b.Context()); err != nil {
					b.Fatal(err)
				}
				runtime.GC()
				b.StartTimer()
				bed = build()
				bed.Sync(b)
			}},
			{"Load", func(b *testing.B, _ int) { bed.Load(b) }},
			{"one endpoint", func(b *testing.B, i int) {
				fe := benchFrontend(n/2, benchEndpoints-i%2)
				fe.AffinityTimeout = 3 * time.Hour
				bed.Want(fe.Service, fe)
				bed.Sync(b)
			}},
			{"one Service comes or goes", func(b *testing.B, i int) {
				fe := benchFrontend(n/2, benchEndpoints)
				fe.AffinityTimeout = 3 * time.Hour
				if list := []model.Frontend{fe}; i%2 == 0 {
					bed.Want(fe.Service)
				} else {
					bed.Want(fe.Service, list...)
				}
				bed.Now = bed.Now.Add(time.Minute)
				bed.Sync(b)
				bed.Track.Expire(bed.Now)
				bed.Sync(b)
			}},
			{"rebuild", func(b *testing.B, _ int) {
				if _, err := bed.Anew(b.Context(), model.IPv4); err != nil {
					b.Fatal(err)
				}
			}},
		} {
			b.Run(fmt.Sprintf("%d/%s", n, c.name), func(b *testing.B) {
				start := cpuTime()
				for i := range b.N {
					c.do(b, i)
				}
				report(b, cpuTime()-start)
			})
		}
	}
}
