package conntrack

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

const (
	tcp  = unix.IPPROTO_TCP
	udp  = unix.IPPROTO_UDP
	sctp = unix.IPPROTO_SCTP
)

// flow makes the flow of a client to a frontend that went to a backend.
func flow(proto uint8, client, frontend, backend string) Flow {
	c, f, b := netip.MustParseAddrPort(client), netip.MustParseAddrPort(frontend), netip.MustParseAddrPort(backend)
	fam := IPv4
	if f.Addr().Is6() {
		fam = IPv6
	}
	return Flow{Family: fam, Protocol: proto, Orig: Tuple{c, f}, Reply: Tuple{b, c}}
}

func dump(t testing.TB, c Table, f Filter) (out []string) {
	t.Helper()
	if err := c.Flows(context.Background(), f, func(x Flow) { out = append(out, x.String()) }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

var samples = append(replied(
	flow(udp, "10.0.0.1:1001", "10.96.0.1:53", "10.1.0.1:5353"),
	flow(udp, "10.0.0.1:1002", "10.96.0.1:53", "10.1.0.2:5353"),
	flow(udp, "10.0.0.1:1003", "10.96.0.2:53", "10.1.0.1:5353"),
	flow(udp, "10.0.0.1:1004", "10.96.0.1:54", "10.1.0.1:5354"),
	flow(udp, "10.0.0.1:1005", "192.168.1.5:30053", "10.1.0.1:5353"),
	flow(udp, "10.0.0.1:1006", "192.168.1.6:30053", "10.1.0.2:5353"),
	flow(tcp, "10.0.0.1:1001", "10.96.0.1:53", "10.1.0.1:5353"),
	flow(sctp, "10.0.0.1:1001", "10.96.0.1:53", "10.1.0.1:5353"),
	flow(udp, "[fd00::1]:1001", "[fd96::1]:53", "[fd01::1]:5353"),
	flow(udp, "[fd00::1]:1002", "[fd96::1]:53", "[fd01::2]:5353"),
), flow(udp, "10.0.0.1:1007", "10.96.0.3:53", "10.96.0.3:53"))

// replied are flows that the other end has answered.
func replied(flows ...Flow) []Flow {
	for i := range flows {
		flows[i].Replied = true
	}
	return flows
}

var filters = map[string]Filter{
	"everything":          {},
	"a family":            {Family: IPv6},
	"a protocol":          {Family: IPv4, Protocol: udp},
	"sctp":                {Family: IPv4, Protocol: sctp},
	"a frontend":          {Family: IPv4, Protocol: udp, OrigDst: netip.MustParseAddr("10.96.0.1"), OrigPort: 53},
	"a NodePort":          {Family: IPv4, Protocol: udp, OrigPort: 30053},
	"a backend":           {Family: IPv4, Protocol: udp, ReplySrc: netip.MustParseAddr("10.1.0.1"), ReplyPort: 5353},
	"a TCP backend":       {Family: IPv4, Protocol: tcp, ReplySrc: netip.MustParseAddr("10.1.0.1"), ReplyPort: 5353},
	"a backend's address": {Family: IPv4, Protocol: udp, ReplySrc: netip.MustParseAddr("10.1.0.1")},
	"both ends": {Family: IPv4, Protocol: udp, OrigDst: netip.MustParseAddr("10.96.0.2"), OrigPort: 53,
		ReplySrc: netip.MustParseAddr("10.1.0.1"), ReplyPort: 5353},
	"an IPv6 backend": {Family: IPv6, Protocol: udp, ReplySrc: netip.MustParseAddr("fd01::2"), ReplyPort: 5353},
	"unanswered":      {Unanswered: true},
	"nothing":         {Family: IPv4, Protocol: udp, OrigDst: netip.MustParseAddr("10.96.0.9"), OrigPort: 53},
}

// What the kernel lists is what Filter.Matches would choose; and the kernel
// itself does the choosing, where it can (Linux 5.8).
func TestKernelFilters(t *testing.T) {
	c := ownTable(t)
	create(t, c, samples)
	fake := &Fake{}
	for _, x := range samples {
		fake.Add(x)
	}
	for name, f := range filters {
		got, want := dump(t, c, f), dump(t, fake, f)
		if !slices.Equal(got, want) {
			t.Errorf("%s: kernel %q, model %q", name, got, want)
		}
		if n := rawCount(t, c, f); n != len(want) && !(f.Family == IPv6 && n == 2) { // of IPv6 the kernel compares ports only
			t.Errorf("%s: the kernel sent %d flows for %d", name, n, len(want))
		}
	}
}

// rawCount counts what the kernel sends before Conn looks at it again.
func rawCount(t *testing.T, c *Conn, f Filter) (n int) {
	t.Helper()
	seq := c.nl.Reserve(1)
	e := encoder{}
	e.dump(&f, seq)
	err := c.nl.Ask(netlink.Question{First: seq, Last: seq, Data: [][]byte{e.b}}, func(m netlink.Message) bool {
		if m.Type == unix.NLMSG_DONE {
			return true
		}
		n++
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDelete(t *testing.T) {
	c := ownTable(t)
	zoned := flow(udp, "10.0.0.1:1001", "10.96.0.1:53", "10.1.0.3:5353")
	zoned.Zone = 7
	create(t, c, append([]Flow{zoned}, samples...))
	var flows []Flow
	if err := c.Flows(t.Context(), Filter{Protocol: udp, Family: IPv4, OrigDst: netip.MustParseAddr("10.96.0.1"), OrigPort: 53},
		func(x Flow) { flows = append(flows, x) }); err != nil {
		t.Fatal(err)
	}
	if len(flows) != 3 {
		t.Fatalf("%d flows, want 3", len(flows))
	}
	reused := flows[0]
	reused.ID++ // as if another flow had taken the tuple
	for _, step := range []struct {
		flows     []Flow
		want, len int
	}{{[]Flow{reused}, 0, 12}, {flows[:1], 1, 11}, {flows, 2, 9}, {flows, 0, 9}, {nil, 0, 9}} {
		n, err := c.Delete(t.Context(), step.flows)
		if err != nil || n != step.want {
			t.Errorf("deleted %d, %v; want %d", n, err, step.want)
		}
		if got := dump(t, c, Filter{}); len(got) != step.len {
			t.Errorf("%d flows are left, want %d: %q", len(got), step.len, got)
		}
	}
}

func TestDeleteMany(t *testing.T) {
	c := ownTable(t)
	many := manyFlows(1000)
	create(t, c, many)
	var flows []Flow
	if err := c.Flows(t.Context(), Filter{Family: IPv4, Protocol: udp}, func(x Flow) { flows = append(flows, x) }); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Delete(t.Context(), flows); n != 1000 || err != nil {
		t.Errorf("deleted %d, %v", n, err)
	}
	if n, err := c.Delete(t.Context(), flows); n != 0 || err != nil {
		t.Errorf("deleted %d again, %v", n, err)
	}
	if left := dump(t, c, Filter{}); len(left) != 0 {
		t.Errorf("%d flows are left", len(left))
	}
}

func TestEndsWithContext(t *testing.T) {
	c := ownTable(t)
	create(t, c, samples)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Flows(ctx, Filter{}, func(Flow) { t.Error("emitted after the end") }); err == nil {
		t.Error("no error after the end")
	}
	if got := dump(t, c, Filter{}); len(got) != len(samples) {
		t.Errorf("the socket gives %d flows afterwards, want %d", len(got), len(samples))
	}
}

// A Conn goes on in its namespace when another thread uses it.
func TestStaysInItsNamespace(t *testing.T) {
	c := ownTable(t)
	create(t, c, samples)
	got := make(chan int)
	go func() { // in the initial namespace
		n := 0
		if err := c.Flows(context.Background(), Filter{}, func(Flow) { n++ }); err != nil {
			t.Error(err)
		}
		got <- n
	}()
	if n := <-got; n != len(samples) {
		t.Errorf("%d flows, want %d", n, len(samples))
	}
}

func manyFlows(n int) []Flow {
	out := make([]Flow, 0, n)
	for i := range n {
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(i >> 16), byte(i >> 8)}), uint16(2000+i&0xff))
		vip := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(i % 100), 1}), 53)
		backend := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i % 1000 >> 8), byte(i % 1000)}), 5353)
		out = append(out, Flow{Family: IPv4, Protocol: udp, Orig: Tuple{client, vip}, Reply: Tuple{backend, client}})
	}
	return out
}

func BenchmarkFlows(b *testing.B) {
	c := ownTable(b)
	create(b, c, manyFlows(150_000))
	for _, f := range []struct {
		name string
		f    Filter
		want int
	}{
		{"all", Filter{}, 150_000},
		{"protocol", Filter{Family: IPv4, Protocol: udp}, 150_000},
		{"otherProtocol", Filter{Family: IPv4, Protocol: sctp}, 0},
		{"frontend", Filter{Family: IPv4, Protocol: udp, OrigDst: netip.MustParseAddr("10.96.7.1"), OrigPort: 53}, 1500},
		{"backend", Filter{Family: IPv4, Protocol: udp, ReplySrc: netip.MustParseAddr("10.1.0.7"), ReplyPort: 5353}, 150},
	} {
		b.Run(f.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				if err := c.Flows(context.Background(), f.f, func(Flow) { n++ }); err != nil || n != f.want {
					b.Fatal(n, err)
				}
			}
			b.ReportMetric(float64(f.want), "flows")
		})
	}
}

// TestReplied: a flow with a reply is distinguished from one without.
func TestReplied(t *testing.T) {
	c := ownTable(t)
	answered, silent := samples[0], samples[len(samples)-1]
	create(t, c, []Flow{answered, silent})
	seen := map[Tuple]bool{}
	if err := c.Flows(t.Context(), Filter{}, func(x Flow) { seen[x.Orig] = x.Replied }); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2 || !seen[answered.Orig] || seen[silent.Orig] {
		t.Errorf("%v", seen)
	}
}
