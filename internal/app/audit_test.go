package app

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/inspect"
)

// asks runs commands and holds what they print, and how they end, against what is wanted.
type asks struct {
	args string
	code int
	want []string
}

// again reports whether to ask once more: an agent that is busy says so, and its status leaves out what is not to be had at once.
func (c *asks) again(code int, out string) bool {
	wrong := code != c.code || slices.ContainsFunc(c.want, func(want string) bool { return !strings.Contains(out, want) })
	return wrong && (strings.HasPrefix(c.args, "status") || strings.Contains(out, "the engine is busy and has not answered within"))
}

func askAll(t *testing.T, list []asks) {
	t.Helper()
	for _, c := range list {
		code, out := run(t, strings.Fields(c.args)...)
		for end := time.Now().Add(patience); c.again(code, out) && time.Now().Before(end); {
			code, out = run(t, strings.Fields(c.args)...)
		}
		if code != c.code {
			t.Errorf("fairlead %s: status %d, want %d:\n%s", c.args, code, c.code, out)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("fairlead %s: no %q in:\n%s", c.args, want, out)
			}
		}
	}
}

// nftScript loads rules as somebody else does; what is in table inet them goes with the test.
func nftScript(t *testing.T, script string) {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("nft", "delete", "table", "inet", "them").Run() })
}

// TestAuditAndTrace ask a real agent.
func TestAuditAndTrace(t *testing.T) {
	p := begin(t, agentArgs(folder(t, webService+brokenService), "--cluster-cidr", "10.244.0.0/16")...)
	p.says("in sync")
	askAll(t, []asks{
		{"trace --from 10.244.1.9:4000 --to 10.96.0.10:80", 0, []string{"From 10.244.1.9: a pod", "dispatch     10.96.0.10:80/TCP is ClusterIP of Service shop/web port http: forwarded", "the source is preserved", "Verdict: sent to 10.244.1.5:8080"}},
		{"trace --from 192.0.2.9 --to shop/web:http", 0, []string{"masqueraded: the client is not a pod"}},
		{"trace --from 10.244.1.9 --to shop/pay", 1, []string{"Verdict: refused: no usable endpoint"}},
		{"trace --from 10.244.1.9 --to 198.51.100.1:80", 1, []string{"Verdict: no Service has 198.51.100.1:80"}},
		{"trace --from fd00::1 --to 10.96.0.10:80", 2, []string{"the addresses are of different families"}},
		{"trace --from 10.244.1.9 --to :30080", 2, []string{"name the address too"}},
		{"trace --to 10.96.0.10:80", 2, []string{`--from is "", and must be IP or IP:PORT`}},
		{"audit", 0, []string{"0 missing, 0 different, 0 foreign in Fairlead's tables",
			"unserved: 1 Services have endpoints but no usable one on this node, such as shop/pay (reason: fairlead explain shop/pay)"}},
		{"audit --foreign", 0, []string{"0 missing, 0 different, 0 foreign in Fairlead's tables", "other programs at the same hooks: no rule in nftables"}},
	})
	nftScript(t, "table inet them { chain watch { type filter hook forward priority 5; ip daddr 10.244.1.0/24 drop; ip daddr 192.0.2.0/24 drop; ct state invalid drop; }; }")
	askAll(t, []asks{{"audit --foreign", 1, []string{
		"other: table inet them, chain watch (filter, forward, priority 5): drop packets to 10.244.1.0/24: an endpoint of Service shop/pay\nother:",
		"may drop any packet (the rule's other conditions are not parsed)", "not well: table inet them"}}})
	if _, out := run(t, "audit", "--foreign"); strings.Contains(out, "192.0.2.0") {
		t.Errorf("a rule that is about nobody's address is named:\n%s", out)
	}
	t.Cleanup(func() { _ = exec.Command("nft", "delete", "table", "ip", "kube-proxy").Run() })
	nftScript(t, "table ip kube-proxy {}")
	askAll(t, []asks{{"audit", 0, []string{"would handle packets of Fairlead's Services: table ip kube-proxy (rules of kube-proxy): TAKES PRECEDENCE"}}})
	p.terminate()
}

// TestAuditsOnDemandAreBounded: the next of its sort comes after so many times what the last took, and within bounds.
func TestAuditsOnDemandAreBounded(t *testing.T) {
	at := time.Unix(1000, 0)
	for _, c := range []struct{ took, pause time.Duration }{
		{time.Millisecond, time.Second},
		{100 * time.Millisecond, 2 * time.Second},
		{time.Hour, time.Minute},
	} {
		a := auditor{last: map[bool]*inspect.Audit{}}
		a.keep(true, &inspect.Audit{At: at, Took: c.took, Objects: 7})
		again, early := a.recent(true, at.Add(c.pause-1))
		if !early || !again.Repeated || again.Objects != 7 {
			t.Errorf("after one of %v, shortly before %v: %v, %+v; want it again", c.took, c.pause, early, again)
		}
		if _, early := a.recent(true, at.Add(c.pause)); early {
			t.Errorf("after one of %v there is none yet at %v", c.took, c.pause)
		}
		if _, early := a.recent(false, at); early {
			t.Errorf("one that repairs is given for one that does not")
		}
	}
}
