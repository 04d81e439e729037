package conntrack

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

// fill puts n flows into the kernel's table: 100 Services, 1000 endpoints of
// them; one in three is UDP, the rest is TCP, which no cleaner should look at.
func fill(b *testing.B, n int) {
	b.Helper()
	for i := range n {
		client, at := net.IPv4(10, 200, byte(i>>16), byte(i>>8)).To4(), uint16(2000+i&0xff)
		proto := uint8(unix.IPPROTO_TCP)
		if i%3 == 0 {
			proto = unix.IPPROTO_UDP
		}
		backend := net.IPv4(10, 1, byte(i%1000>>8), byte(i%1000)).To4()
		f := &netlink.ConntrackFlow{FamilyType: unix.AF_INET, TimeOut: 3600,
			Forward: netlink.IPTuple{SrcIP: client, SrcPort: at, DstIP: net.IPv4(10, 96, 0, byte(i%100)).To4(), DstPort: 53, Protocol: proto},
			Reverse: netlink.IPTuple{SrcIP: backend, SrcPort: 5353, DstIP: client, DstPort: at, Protocol: proto}}
		if proto == unix.IPPROTO_TCP {
			f.ProtoInfo = &netlink.ProtoInfoTCP{State: 3}
		}
		if err := netlink.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, f); err != nil {
			b.Fatal(err)
		}
	}
}

// services decides all of fill's Services; skip leaves one endpoint of one out.
func services(skip int) (out []string) {
	for s := range 100 {
		text := fmt.Sprintf("udp 10.96.0.%d:53", s)
		for e := s; e < 1000; e += 100 {
			if e != skip {
				text += fmt.Sprintf(" 10.1.%d.%d:5353", e>>8, e&0xff)
			}
		}
		out = append(out, text)
	}
	return out
}

// cpu is what this thread's process has used so far.
func cpu(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkEndpointRemoved at 150 000 flows: upstream needs 0.5 s of CPU for it.
func BenchmarkEndpointRemoved(b *testing.B) {
	table := ownNetns(b)
	fill(b, 150_000)
	for _, c := range []struct {
		name string
		now  func(i int) []string
	}{
		{"oneEndpoint", func(i int) []string { return services(i)[i : i+1] }},
		{"oneService", func(i int) []string { return []string{fmt.Sprintf("udp 10.96.0.%d:53", i)} }},
	} {
		b.Run(c.name, func(b *testing.B) {
			var last Pass
			r := &rig{Cleaner: New(Params{Table: table, Rest: -1, OnPass: func(p Pass) { last = p }})}
			r.update(nil, services(-1)...)
			r.Sweep()
			r.turn(b.Context())
			sweep, i, deleted, used := last, 0, 0, time.Duration(0)
			for b.Loop() {
				r.update(nil, c.now(i%100)...)
				t0 := cpu(b)
				r.turn(b.Context())
				used += cpu(b) - t0
				if last.Err != nil || last.Dumps != 1 {
					b.Fatalf("pass %+v", last)
				}
				deleted += last.Deleted[model.IPv4]
				i++
			}
			b.ReportMetric(used.Seconds()*1e3/float64(i), "cpu-ms/op")
			b.ReportMetric(float64(deleted)/float64(i), "flows-deleted/op")
			b.ReportMetric(sweep.Took.Seconds()*1e3, "sweep-ms")
		})
	}
}
