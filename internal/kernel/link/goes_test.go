package link

import (
	"net/netip"
	"os/exec"
	"slices"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// Of the kernel's notifications about rules, only deletions of the agent's rules are reported.
func TestRuleThatGoes(t *testing.T) {
	netnstest.Enter(t)
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.SetReceiveTimeout(&unix.Timeval{Sec: 60}); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) func() error {
		return func() error { return exec.Command("ip", args...).Run() }
	}
	if err := run("link", "set", "lo", "up")(); err != nil {
		t.Fatal(err)
	}
	r, err := OpenReturns(20000, 20999)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"10.1.0.5:8080", "[fd01::5]:8080"} {
		server, family := Server{At: netip.MustParseAddrPort(at), Protocol: unix.IPPROTO_TCP}, "-4"
		if server.At.Addr().Is6() {
			family = "-6"
		}
		for _, step := range []struct {
			what string
			do   func() error
			want bool
		}{
			{"a rule of ours comes", func() error { return r.Add(server) }, false},
			{"a foreign one comes", run(family, "rule", "add", "pref", "7", "lookup", "1250"), false},
			{"a foreign one goes", run(family, "rule", "del", "pref", "7"), false},
			{"one of another protocol comes", run(family, "rule", "add", "pref", "8", "lookup", "1250", "protocol", "99"), false},
			{"one of another protocol goes", run(family, "rule", "del", "pref", "8"), false},
			{"a rule of ours goes", func() error { return r.Delete(server) }, true},
		} {
			if err := step.do(); err != nil {
				t.Fatalf("%s: %v", step.what, err)
			}
			told, _, err := s.Receive()
			if err != nil {
				t.Fatalf("%s: %v", step.what, err)
			}
			if slices.ContainsFunc(told, goes) != step.want {
				t.Errorf("%s, %s: an alarm is not %v", at, step.what, step.want)
			}
		}
	}
}
