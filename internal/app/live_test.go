package app

import (
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// TestTraceLive: a stranger's rule drops what fairlead has translated, and the trace
// names whose rule it was; what fairlead refuses it says of itself. Nothing is left.
func TestTraceLive(t *testing.T) {
	sh(t, "ip link set lo up && ip addr add 10.244.1.5/32 dev lo && ip route add 10.96.0.0/16 dev lo src 10.244.1.5")
	t.Cleanup(func() { sh(t, "ip route del 10.96.0.0/16; ip addr del 10.244.1.5/32 dev lo") })
	nftScript(t, "table inet them { chain watch { type filter hook output priority 5; ip daddr 10.244.1.5 tcp dport 8080 drop; }; }")
	p := begin(t, agentArgs(folder(t, webService+brokenService), "--cluster-cidr", "10.244.0.0/16")...)
	p.says("in sync")
	askAll(t, []asks{{"trace --from 10.244.1.9 --to shop/web --live=10ms", 0, []string{"no packet of such a new connection arrived within 10ms"}}})
	defer connect(t, "10.96.0.10:80", "10.96.0.11:80")()
	askAll(t, []asks{
		{"trace --from 10.244.1.5 --to shop/web --live=30s", 1, []string{
			"Verdict: sent to 10.244.1.5:8080", "ours  table ip fairlead, chain ", "(now to 10.244.1.5:8080)",
			"sent to 10.244.1.5:8080, and dropped there by a rule that is not fairlead's: table inet them, chain watch, rule ",
		}},
		{"trace --from 10.244.1.5 --to 10.96.0.11:80 --live=30s", 1, []string{"Live: rejected or dropped by fairlead: table ip fairlead, chain "}},
		{"trace --from 10.244.1.5 --to shop/web --live=soon", 2, []string{"invalid argument"}},
	})
	if out := sh(t, "nft list tables"); strings.Contains(out, "trace") {
		t.Errorf("left over:\n%s", out)
	}
	p.terminate()
}

// TestTraceThatMissedSomething says so.
func TestTraceThatMissedSomething(t *testing.T) {
	for place, lost := range map[string]bool{"nftables": false, "iptables-legacy": true} {
		p := packet{}
		if lost && p.met(&nft.TraceEvent{Lost: true}, "ours") {
			t.Error("it ends with what was lost")
		}
		note := blindness("iptables", place, p.lost)
		if strings.Contains(note, "more packets than the agent could read") != lost || strings.Contains(note, "cannot trace rules of iptables-legacy") != lost || len(p.list) != 0 {
			t.Errorf("%s: %q, %v", place, note, p.list)
		}
	}
}

// connect begins connections again and again until it is stopped.
func connect(t *testing.T, to ...string) (stop func()) {
	t.Helper()
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			for _, at := range to {
				if c, err := net.DialTimeout("tcp", at, 50*time.Millisecond); err == nil {
					_ = c.Close()
				}
			}
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() { close(ended); <-done }
}

func sh(t *testing.T, script string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}
