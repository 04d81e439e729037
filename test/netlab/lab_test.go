package netlab_test

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

func newLab(t *testing.T) *netlab.Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the lab makes network namespaces and needs root: run `make test` as root")
	}
	lab, err := netlab.New(t.Context(), netlab.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return lab
}

func ask(t *testing.T, lab *netlab.Lab, from string, proto netlab.Protocol, to netip.AddrPort) netlab.Reply {
	t.Helper()
	h, err := lab.Host(from)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return h.Ask(ctx, proto, to)
}

func TestEveryHostAnswersEveryOther(t *testing.T) {
	lab := newLab(t)
	for _, from := range lab.Hosts() {
		for _, to := range lab.Hosts() {
			if strings.HasPrefix(to, "client") {
				continue
			}
			server, _ := lab.Host(to)
			for _, ip := range []netip.Addr{server.Addrs.V4, server.Addrs.V6} {
				for _, proto := range []netlab.Protocol{netlab.TCP, netlab.UDP, netlab.SCTP} {
					r := ask(t, lab, from, proto, netip.AddrPortFrom(ip, 8080))
					if r.Outcome != netlab.Answered || r.Backend != to || !r.Preserved() || r.Port != 8080 {
						t.Errorf("%s -> %s %s %s: %v, own %s: %v", from, to, ip, proto, r, r.Own, r.Err)
					}
				}
			}
		}
	}
}

func TestFailuresAreTold(t *testing.T) {
	lab := newLab(t)
	for _, rule := range []string{
		"add table ip t", "add chain ip t out { type filter hook output priority 0; }",
		"add rule ip t out ip daddr 10.96.0.9 tcp dport 80 reject with tcp reset",
		"add rule ip t out ip daddr 10.96.0.9 reject with icmp port-unreachable",
		"add rule ip t out ip daddr 10.96.0.8 drop",
		"add chain ip t through { type filter hook forward priority 0; }",
		"add rule ip t through ip daddr 10.96.0.7 reject with icmp host-unreachable",
	} {
		if _, err := lab.Node().Run(t.Context(), "nft", rule); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		from, to string
		want     netlab.Outcome
	}{
		{"client", "172.18.0.2:81", netlab.Refused},
		{"client", "[fd00:172:18::2]:81", netlab.Refused},
		{"client", "10.96.0.1:80", netlab.TimedOut}, // no Service claims it: the wire drops it
		{"client", "[fd00:10:96::1]:80", netlab.TimedOut},
		{"node-a", "10.96.0.9:80", netlab.Refused},
		{"node-a", "10.96.0.8:80", netlab.TimedOut},
		{"client", "10.96.0.7:80", netlab.Unreachable},
	} {
		for _, proto := range []netlab.Protocol{netlab.TCP, netlab.UDP, netlab.SCTP} {
			if c.want == netlab.Unreachable && proto != netlab.TCP {
				continue // a soft error: the kernel reports it to TCP only, unless the socket sets RECVERR
			}
			t.Run(c.from+" "+c.to+" "+string(proto), func(t *testing.T) {
				t.Parallel()
				if r := ask(t, lab, c.from, proto, netip.MustParseAddrPort(c.to)); r.Outcome != c.want {
					t.Errorf("%s (%v), want %s", r.Outcome, r.Err, c.want)
				}
			})
		}
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	lab, err := netlab.New(t.Context(), netlab.Config{PodsPerNode: 1})
	if err != nil {
		t.Fatal(err)
	}
	name := lab.Node().NetNS
	if _, err := os.Stat("/run/netns/" + name); err != nil {
		t.Fatal(err)
	}
	if err := lab.Close(); err != nil {
		t.Fatal(err)
	}
	prefix := strings.TrimSuffix(name, "node-a")
	entries, err := os.ReadDir("/run/netns")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}

func TestRunIsBounded(t *testing.T) {
	lab := newLab(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := lab.Node().Run(ctx, "sleep", "600"); err == nil || time.Since(start) > time.Minute {
		t.Errorf("run of an endless command: %v after %s", err, time.Since(start))
	}
	out, err := lab.Node().Run(t.Context(), "sh", "-c", "readlink /proc/self/ns/net; echo out; exit 3")
	if err == nil || !strings.Contains(out, "out") {
		t.Errorf("run of a failing command: %q, %v", out, err)
	}
}
