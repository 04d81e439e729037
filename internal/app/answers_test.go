package app

import "testing"

// TestAnswersInUserspaceMode: there the agent's own sockets are compared.
func TestAnswersInUserspaceMode(t *testing.T) {
	if code, out := run(t, "cleanup"); code != 0 { // what other tests left would be among the rules of others
		t.Fatal(out)
	}
	p := begin(t, agentArgs(folder(t, webService), "--proxy-mode", "userspace", "--userspace-addresses", "loopback")...)
	p.says("in sync")
	askAll(t, []asks{
		{"explain shop/web", 0, []string{"Service shop/web is forwarded, to 1 endpoint", "In kernel  agrees ("}},
		{"audit", 0, []string{" objects read in ", "0 missing, 0 different, 0 foreign"}},
		{"audit --repair=false", 0, []string{"0 missing, 0 different, 0 foreign"}},
		{"audit --foreign", 0, []string{"others at our hooks: nothing in nftables or iptables-legacy"}},
		{"status", 0, []string{"mode userspace", "In kernel    yes"}},
	})
	p.terminate()
}
