package iptables

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/nfacct"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/test/patience"
)

// countingBed has one NodePort, 30080, whose endpoint is on the node, and a link
// by which packets come that are to be forwarded.
func countingBed(t *testing.T, ns *netns) (*dataplanetest.Bed, *witness) {
	t.Helper()
	ns.sh(t, `ip link set lo up; ip addr add 10.9.9.9/32 dev lo; ip addr add 192.0.2.1/32 dev lo
		ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up
		ip addr add 10.1.0.1/24 dev v0; ip route add 10.2.0.0/24 dev v0
		echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet
		echo 1 > /proc/sys/net/ipv4/ip_forward
		for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done`)
	d := New(Params{Kernel: ns.Conn, Counters: ns.counters(t)})
	if caps, err := d.Probe(t.Context()); err != nil || len(caps.Notes) > 0 {
		t.Fatalf("probe: %+v, %v", caps, err)
	}
	w := newWitness()
	d.Observe(w)
	bed := dataplanetest.NewBed(d, dataplanetest.View())
	bed.Load(t)
	bed.Base()
	bed.Want(dataplanetest.Service(0), nodePort())
	bed.Sync(t)
	return bed, w
}

func nodePort() model.Frontend {
	return model.Frontend{
		Key: model.FrontendKey{Family: model.IPv4, Protocol: model.TCP, Port: 30080}, Kind: model.NodePort, Masquerade: true,
		Service: dataplanetest.Service(0), Port: "http", Verdict: model.Forward,
		Backends: []model.Backend{{Addr: netip.MustParseAddr("10.9.9.9"), Port: 8080, Weight: 1, Local: true}},
	}
}

// holds wants both counters to come to these values.
func (w *witness) holds(t *testing.T, when string, invalid, localhost uint64) {
	t.Helper()
	var got [2]uint64
	for until := time.Now().Add(patience.Of(30 * time.Second)); time.Now().Before(until); time.Sleep(10 * time.Millisecond) { // bounded poll: packets tell nobody
		for i, read := range w.counters {
			n, err := read()
			if err != nil {
				t.Fatal(err)
			}
			got[i] = n
		}
		if got == [2]uint64{invalid, localhost} {
			return
		}
	}
	t.Errorf("%s: %d invalid packets dropped and %d to localhost accepted, want %d and %d", when, got[0], got[1], invalid, localhost)
}

// TestCountersCountPackets: 40 connections to a NodePort on 127.0.0.1, then as
// many to another address of the node; a reset and a SYN that are to be forwarded.
func TestCountersCountPackets(t *testing.T) {
	eachBackend(t, func(t *testing.T, b iptables.Backend) {
		ns := ownNetns(t, b)
		bed, w := countingBed(t, ns)
		w.holds(t, "at first", 0, 0)
		listen := netip.MustParseAddrPort("10.9.9.9:8080")
		connect := func(to string) {
			ns.inside(t, func() error { _, err := connects(listen, netip.MustParseAddrPort(to)); return err })
		}
		connect("127.0.0.1:30080")
		w.holds(t, "after 40 connections", 0, 40)
		connect("192.0.2.1:30080")
		ns.inside(t, func() error {
			if _, err := connects(listen, netip.MustParseAddrPort("127.0.0.1:30081")); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("a port that no Service has: %v", err)
			}
			return nil
		})
		w.holds(t, "after connections to other addresses and ports", 0, 40)
		const syn, rst = 0x02, 0x04
		ns.inside(t, func() error { return forward(rst, syn, rst, rst) })
		w.holds(t, "after three stray resets and a SYN", 3, 40)

		before := bed.View
		bed.View.LocalhostNodePorts = false
		if !bed.Driver.ViewChanged(&before, &bed.View) {
			t.Error("without localhost NodePorts the Services' chains are said to be the same")
		}
		bed.Want(dataplanetest.Service(0), nodePort())
		bed.Sync(t)
		if saved := ns.save(t); strings.Contains(saved, localhostCounter) {
			t.Errorf("it still counts: %s", saved)
		}
	})
}

// forward sends TCP packets into the node that are to leave it again: one for each
// set of flags, each from a port of its own.
func forward(flags ...byte) error {
	out, err := net.InterfaceByName("v1")
	if err != nil {
		return err
	}
	in, err := net.InterfaceByName("v0")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for i, f := range flags {
		frame := append(append([]byte{}, in.HardwareAddr...), out.HardwareAddr...)
		frame = append(frame, 8, 0)
		ip := []byte{0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, unix.IPPROTO_TCP, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2}
		binary.BigEndian.PutUint16(ip[10:], checksum(ip))
		tcp := []byte{0x80, byte(i), 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 5 << 4, f, 0x10, 0, 0, 0, 0, 0}
		binary.BigEndian.PutUint16(tcp[16:], checksum(append([]byte{0, unix.IPPROTO_TCP, 0, 20}, append(ip[12:20:20], tcp...)...)))
		frame = append(append(frame, ip...), tcp...)
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: out.Index, Halen: 6}); err != nil {
			return err
		}
	}
	return nil
}

// checksum is RFC 1071's, of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
}

// TestCountersOutliveUs: a restart writes nothing and counts on; counters that
// somebody took away with the rules come back; clean-up by a driver that knows
// nothing removes ours, and leaves others'.
func TestCountersOutliveUs(t *testing.T) {
	eachBackend(t, func(t *testing.T, b iptables.Backend) {
		ns := ownNetns(t, b)
		_, w := countingBed(t, ns)
		listen := netip.MustParseAddrPort("10.9.9.9:8080")
		ns.inside(t, func() error { _, err := connects(listen, netip.MustParseAddrPort("127.0.0.1:30080")); return err })

		table := ns.counters(t)
		d := New(Params{Kernel: ns.Conn, Counters: table})
		if _, err := d.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		bed := dataplanetest.NewBed(d, dataplanetest.View())
		bed.Base()
		bed.Want(dataplanetest.Service(0), nodePort())
		bed.Load(t)
		if n := len(bed.Pending()); n > 0 {
			t.Errorf("the restart writes %d objects", n)
		}
		w.holds(t, "after a restart", 0, 40)

		ns.sh(t, "for p in $IPT $IP6T; do for t in nat filter; do $p -t $t -F; $p -t $t -X; done; done")
		if err := d.removeCounters(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.ensured = true // it was not we who removed them
		if got, err := table.List(); err != nil || len(got) != 0 {
			t.Fatalf("not free to delete: %v, %v", got, err)
		}
		bed.Load(t)
		bed.Sync(t)
		w.holds(t, "made again", 0, 0)

		if err := table.Ensure("theirs"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := New(Params{Kernel: ns.Conn, Counters: ns.counters(t)}).Cleanup(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got, err := table.List(); err != nil || len(got) != 1 || got[0].Name != "theirs" {
				t.Errorf("after clean-up there are %v, %v", got, err)
			}
		}
	})
}

// TestCleanupWaitsForCounters: nf_tables may let go of them some time after its
// commit. Somebody else's rule never does; then the counter is theirs.
func TestCleanupWaitsForCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := nfacct.NewFake()
		d := New(Params{Kernel: iptables.NewFake(), Counters: fake})
		if err := d.ensureCounters(); err != nil {
			t.Fatal(err)
		}
		fake.Use(invalidCounter, true)
		fake.Use(localhostCounter, true)
		time.AfterFunc(300*time.Millisecond, func() { fake.Use(invalidCounter, false) })
		if err := d.Cleanup(t.Context()); err != nil {
			t.Error(err)
		}
		if left, err := fake.List(); err != nil || len(left) != 1 || left[0].Name != localhostCounter {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

// TestWithoutCounters: the agent goes on as before, and says why.
func TestWithoutCounters(t *testing.T) {
	eachBackend(t, func(t *testing.T, b iptables.Backend) {
		ns := ownNetns(t, b)
		table := ns.counters(t)
		none := &nfacct.Counter{Table: table, Fail: func(string) error { return nfacct.ErrUnsupported }}
		for want, p := range map[string]Params{
			"the kernel lacks nfacct (CONFIG_NETFILTER_NETLINK_ACCT)":              {Kernel: ns.Conn, Counters: none},
			"the kernel lacks the match nfacct (CONFIG_NETFILTER_XT_MATCH_NFACCT)": {Kernel: &lacking{ns.Conn, "-m nfacct"}, Counters: table},
		} {
			d := New(p)
			caps, err := d.Probe(t.Context())
			if err != nil || len(caps.Families) != 2 || len(caps.Notes) != 1 || !strings.HasSuffix(caps.Notes[0], want) {
				t.Fatalf("probe says %+v, %v; want %q", caps, err, want)
			}
			w := newWitness()
			d.Observe(w)
			if w.counters != nil {
				t.Error("there is nothing to read")
			}
			bed := dataplanetest.NewBed(d, dataplanetest.View())
			bed.Load(t)
			bed.Base()
			bed.Want(dataplanetest.Service(0), nodePort())
			bed.Sync(t)
			if saved := ns.save(t); strings.Contains(saved, "nfacct") || !strings.Contains(saved, "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP") {
				t.Errorf("rules are not as they were without counters: %s", saved)
			}
			if err := d.Cleanup(t.Context()); err != nil {
				t.Errorf("clean up: %v", err)
			}
			if got, err := table.List(); err != nil || len(got) != 0 {
				t.Errorf("left behind: %v, %v", got, err)
			}
		}
	})
}
