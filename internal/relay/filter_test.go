package relay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// keeps reports whether a datagram from an address passes the socket's filter: the relay
// answers with an endpoint, or it drops.
func keeps(t *testing.T, list []netip.Prefix, from string) bool {
	t.Helper()
	program, ok := filter(list, netip.MustParseAddr(from).Is4())
	if !ok {
		t.Fatal("too long")
	}
	host := "127.0.0.1"
	if netip.MustParseAddr(from).Is6() {
		host = "::1"
	}
	in, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close() //nolint:errcheck // of the test
	raw, err := in.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := errors.Join(raw.Control(func(fd uintptr) { failed = attach(fd, program) }), failed); err != nil {
		t.Fatal(err)
	}
	out, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)}, in.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close() //nolint:errcheck // of the test
	if _, err := out.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	kept := make(chan bool, 1)
	go func() {
		_, _, err := in.ReadFrom(make([]byte, 10))
		kept <- err == nil
	}()
	dropped := false
	eventually(t, func() error {
		select {
		case <-kept:
			return nil
		default:
		}
		if dropped = drops(t, in.LocalAddr().(*net.UDPAddr).Port) > 0; dropped {
			return nil
		}
		return errors.New("neither kept nor dropped")
	})
	return !dropped
}

// drops is how many datagrams the kernel has dropped in front of a UDP socket.
func drops(t *testing.T, port int) (n int) {
	t.Helper()
	for _, file := range []string{"/proc/self/net/udp", "/proc/self/net/udp6"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) > 12 && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) && strings.HasSuffix(fields[2], ":0000") {
				d, err := strconv.Atoi(fields[len(fields)-1])
				if err != nil {
					t.Fatal(err)
				}
				n += d
			}
		}
	}
	return n
}

func TestFilter(t *testing.T) {
	for _, c := range []struct {
		list []netip.Prefix
		from string
		want bool
	}{
		{prefixes("127.0.0.0/8"), "127.0.0.2", true},
		{prefixes("127.0.0.2/32"), "127.0.0.2", true},
		{prefixes("127.0.0.3/32"), "127.0.0.2", false},
		{prefixes("127.0.0.2/31"), "127.0.0.3", true},
		{prefixes("127.0.0.2/31"), "127.0.0.4", false},
		{prefixes("10.0.0.0/8", "127.0.1.0/24", "127.0.0.4/32"), "127.0.0.4", true},
		{prefixes("10.0.0.0/8", "127.0.1.0/24", "127.0.0.4/32"), "127.0.0.5", false},
		{prefixes("0.0.0.0/0"), "127.0.0.5", true},
		{prefixes("::/0"), "127.0.0.5", false},
		{nil, "127.0.0.5", false},
		{prefixes("::1/128"), "::1", true},
		{prefixes("::/0"), "::1", true},
		{prefixes("::/96"), "::1", true},
		{prefixes("::2/128"), "::1", false},
		{prefixes("fd00::/8", "::/127"), "::1", true},
		{prefixes("fd00::/8", "0:0:0:0:1::/80"), "::1", false},
	} {
		if got := keeps(t, c.list, c.from); got != c.want {
			t.Errorf("%v lets %s in: %v, want %v", c.list, c.from, got, c.want)
		}
	}
}

// A client outside the source ranges gets no answer at all, TCP and UDP, and one inside does;
// both follow a change.
func TestSourceRanges(t *testing.T) {
	r := newRelay(t, Params{})
	b := named(t, "127.0.0.1")
	f := frontend(b)
	f.Guarded, f.SourceRanges = true, prefixes("127.0.0.2/32")
	tg := r.Target(f)
	at := open(t, tg, "127.0.0.1", model.TCP)
	if got, err := ask(t, "127.0.0.2", at); err != nil || got != answered(b) {
		t.Errorf("a guest gets %q, %v", got, err)
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.3")}, Timeout: 50 * time.Millisecond}
	c, err := d.DialContext(t.Context(), "tcp", at.String())
	var timeout net.Error
	if err == nil || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a stranger gets %v, %v, want no answer", c, err)
	}
	f.SourceRanges = prefixes("127.0.0.3/32")
	tg.Set(f)
	if got, err := ask(t, "127.0.0.3", at); err != nil || got != answered(b) {
		t.Errorf("now a guest, he gets %q, %v", got, err)
	}
	if tg.admits(netip.MustParseAddr("127.0.0.2"), at.Addr()) {
		t.Error("who got in before the change is still let in")
	}
}

func TestAdmitted(t *testing.T) {
	w := &Whereabouts{Pods: prefixes("10.244.0.0/16"), Node: []netip.Addr{netip.MustParseAddr("172.18.0.2")}}
	vip := netip.MustParseAddr("198.51.100.1")
	local := model.Frontend{Verdict: model.Forward, LocalOnly: true, LocalVerdict: model.Drop}
	both := local
	both.Guarded, both.SourceRanges = true, prefixes("10.244.1.0/24", "192.0.2.0/24")
	nodeToo := model.Frontend{Verdict: model.Forward, Guarded: true, SourceRanges: prefixes("172.18.0.0/24")}
	for _, c := range []struct {
		name    string
		f       model.Frontend
		in, out []string
	}{
		{"all", model.Frontend{Verdict: model.Forward}, []string{"192.0.2.1", "10.244.1.1"}, nil},
		{"nobody", model.Frontend{Verdict: model.Drop}, nil, []string{"192.0.2.1", "10.244.1.1", "127.0.0.1"}},
		{"inside only", local, []string{"10.244.1.1", "172.18.0.2", "198.51.100.1", "127.0.0.1"}, []string{"192.0.2.1"}},
		{"inside, in the ranges", both, []string{"10.244.1.1"}, []string{"192.0.2.1", "10.244.2.1", "198.51.100.1"}},
		{"the node is in the ranges", nodeToo, []string{"172.18.0.2", "198.51.100.1"}, []string{"10.244.1.1"}},
	} {
		list, any := admitted(&c.f, w, vip)
		for _, a := range c.in {
			if !any && !within(list, netip.MustParseAddr(a)) {
				t.Errorf("%s: %s is kept out", c.name, a)
			}
		}
		for _, a := range c.out {
			if any || within(list, netip.MustParseAddr(a)) {
				t.Errorf("%s: %s is let in", c.name, a)
			}
		}
	}
}

// A node with one of its addresses in the source ranges is admitted, whichever source address
// its kernel chooses: the Service's own in IPv4, one of the node's or ::1 in IPv6.
func TestNodeInTheSourceRanges(t *testing.T) {
	addr := netip.MustParseAddr
	w := Whereabouts{Node: []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1"), addr("2001:db8::2")}}
	for _, c := range []struct {
		ranges, at, client string
		admitted           bool
	}{
		{"192.0.2.1/32", "203.0.113.7", "203.0.113.7", true},
		{"192.0.2.1/32", "203.0.113.7", "192.0.2.2", false},
		{"2001:db8::1/128", "2001:db8:7::7", "2001:db8::1", true},
		{"2001:db8::1/128", "2001:db8:7::7", "2001:db8::2", true},
		{"2001:db8::1/128", "2001:db8:7::7", "::1", true},
		{"2001:db8::1/128", "2001:db8:7::7", "2001:db8::3", false},
		{"2001:db8::9/128", "2001:db8:7::7", "2001:db8::1", false},
		{"2001:db8::9/128", "2001:db8:7::7", "::1", false},
	} {
		f := frontend()
		f.Verdict, f.Guarded, f.SourceRanges = model.Forward, true, []netip.Prefix{netip.MustParsePrefix(c.ranges)}
		if list, any := admitted(&f, &w, addr(c.at)); any || within(list, addr(c.client)) != c.admitted {
			t.Errorf("ranges %s at %s: %s admitted %v, want %v", c.ranges, c.at, c.client, !c.admitted, c.admitted)
		}
	}
}
