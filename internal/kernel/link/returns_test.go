package link_test

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

func TestReturns(t *testing.T) {
	netnstest.Enter(t)
	ip(t, "link", "set", "lo", "up")
	r, err := link.OpenReturns(20000, 20999)
	if err != nil {
		t.Fatal(err)
	}
	servers := []link.Server{
		{At: netip.MustParseAddrPort("10.1.0.5:8080"), Protocol: unix.IPPROTO_TCP},
		{At: netip.MustParseAddrPort("10.1.0.5:8080"), Protocol: unix.IPPROTO_UDP},
		{At: netip.MustParseAddrPort("[fd01::5]:8080"), Protocol: unix.IPPROTO_TCP},
	}
	listed := func(want ...link.Server) {
		t.Helper()
		got, err := r.List()
		if err != nil || len(got) != len(want) {
			t.Fatalf("%v, %v; want %v", got, err, want)
		}
		for _, s := range want {
			if !strings.Contains(strings.Join(text(got), " "), text([]link.Server{s})[0]) {
				t.Errorf("%v lacks %v", got, s)
			}
		}
	}
	do := func(f func(link.Server) error, list ...link.Server) {
		t.Helper()
		for _, s := range list {
			if err := f(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	do(r.Add, servers...)
	do(r.Add, servers...) // again: nothing changes
	listed(servers...)
	ip(t, "rule", "add", "pref", "7", "lookup", "1250") // another program's rule
	do(r.Delete, servers[0], servers[0])
	listed(servers[1:]...)
	ip(t, "route", "flush", "table", "1250")
	listed(servers[2])
	do(r.Add, servers[1])
	listed(servers[1:]...)
	do(r.Delete, servers[1:]...)
	listed()
	if out := ip(t, "route", "show", "table", "all", "proto", "250") + ip(t, "-6", "route", "show", "table", "all", "proto", "250"); out != "" {
		t.Errorf("left: %s", out)
	}
	do(r.Add, servers...)
	other, err := link.OpenReturns(1, 2) // as of another version
	if err != nil {
		t.Fatal(err)
	}
	ip(t, "-6", "rule", "add", "pref", "9", "lookup", "1250", "protocol", "250") // the only rule of its family
	if n, err := other.Remove(); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if out := ip(t, "rule") + ip(t, "-6", "rule"); strings.Contains(out, "proto 250") || !strings.Contains(out, "7:\tfrom all lookup 1250") {
		t.Errorf("left: %s", out)
	}
}

func text(list []link.Server) (out []string) {
	for _, s := range list {
		out = append(out, s.At.String()+map[uint8]string{unix.IPPROTO_TCP: "/TCP", unix.IPPROTO_UDP: "/UDP"}[s.Protocol])
	}
	return out
}

func ip(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "FIB table does not exist") {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
	return strings.ReplaceAll(string(out), "Error: ipv4: FIB table does not exist.\nDump terminated\n", "")
}
