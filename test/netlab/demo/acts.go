package demo

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/scenarios/kit"
)

// spread makes 30 requests to each address of the web Service.
func (s *show) spread() {
	s.title("1. One Service, four ways in, three backends")
	for _, way := range []struct {
		name string
		to   netip.AddrPort
	}{
		{"ClusterIP, IPv4", webCluster4}, {"ClusterIP, IPv6", webCluster6}, {"NodePort, IPv4", webNode4}, {"NodePort, IPv6", webNode6},
	} {
		counts, lost := askTimes(s.ctx, s.lab.Client(), netlab.TCP, way.to, 30)
		s.claim(lost == 0 && len(counts) == 3, "%s: 30 requests to %s, %d lost, %d backends answered", way.name, way.to, lost, len(counts))
		s.bars(counts)
	}
}

// others shows the two other examples briefly.
func (s *show) others() {
	s.title("2. UDP with session affinity, and a load balancer address with source ranges")
	counts, lost := askTimes(s.ctx, s.lab.Client(), netlab.UDP, dnsCluster, 30)
	s.claim(lost == 0 && len(counts) == 1, "UDP: 30 requests to %s, each from a new port, all answered by one backend", dnsCluster)
	s.bars(counts)
	counts, lost = askTimes(s.ctx, s.lab.Client(), netlab.TCP, shopVIP, 30)
	s.claim(lost == 0 && len(counts) == 2, "%s answers client, which is in its source range, from %d backends", shopVIP, len(counts))
	other, err := s.lab.Host("client2")
	if err != nil {
		s.claim(false, "find client2: %v", err)
		return
	}
	rep := askOnce(s.ctx, other, netlab.TCP, shopVIP)
	s.claim(rep.Outcome == netlab.TimedOut, "... and drops client2, which is not (%s)", rep.Outcome)
}

// shrink removes one line from each EndpointSlice while clients send requests.
func (s *show) shrink() error {
	s.title("3. A backend is removed while clients send requests")
	t := startTraffic(s.ctx, s.lab.Client(), webCluster4, webCluster6, webNode4, webNode6)
	t.wait(s.ctx, 400)
	less, removed := without(s.files["web.yaml"], "# pod-b1")
	s.claim(removed == 2, "taking pod-b1's line out of web.yaml, once for each family")
	changed := time.Now()
	if err := s.agent.Apply(s.ctx, []kit.File{{Name: "web.yaml", Data: less}}); err != nil {
		t.stop()
		return err
	}
	t.wait(s.ctx, 400)
	last := t.lastOf("pod-b1")
	if err := s.agent.Apply(s.ctx, []kit.File{{Name: "web.yaml", Data: s.files["web.yaml"]}}); err != nil {
		t.stop()
		return err
	}
	t.wait(s.ctx, 200)
	back := t.lastOf("pod-b1").After(last)
	answered, lost := t.stop()
	s.claim(lost == 0, "%d requests during the change, %d lost", answered+lost, lost)
	s.claim(last.Before(changed.Add(time.Second)), "the last request that chose pod-b1 began %s", after(last.Sub(changed)))
	s.claim(back, "its line restored, pod-b1 answers again")
	return nil
}

// without returns the text without the lines that contain mark, and the number of those
// lines.
func without(text, mark string) (string, int) {
	var out strings.Builder
	removed := 0
	for line := range strings.Lines(text) {
		if strings.Contains(line, mark) {
			removed++
			continue
		}
		out.WriteString(line)
	}
	return out.String(), removed
}

func after(d time.Duration) string {
	if d < 0 {
		return brief(-d) + " before the file changed"
	}
	return brief(d) + " after the file changed"
}

// flush removes every rule with another program and shows that the agent repairs them.
func (s *show) flush() error {
	s.title("4. Another program flushes all rules")
	if s.cfg.Mode != "nftables" {
		s.say("(shown in nftables mode only)")
		return nil
	}
	before := read(s.ctx, s.lab.Node())
	if _, err := s.lab.Node().Run(s.ctx, "nft", "flush", "ruleset"); err != nil {
		return err
	}
	flushed := time.Now()
	for _, to := range []netip.AddrPort{webCluster4, webCluster6, webNode4, webNode6} {
		if !s.until(to) {
			s.claim(false, "%s answers again", to)
			return nil
		}
	}
	took := time.Since(flushed)
	counts, lost := askTimes(s.ctx, s.lab.Client(), netlab.TCP, webCluster4, 30)
	now := read(s.ctx, s.lab.Node())
	s.claim(lost == 0 && len(counts) == 3, "`nft flush ruleset`: every way in answers again %s after the command ended", brief(took))
	repaired := now["fairlead_drift_repaired_total"] - before["fairlead_drift_repaired_total"]
	s.claim(repaired > 0, "the agent detected it and restored %.0f objects", repaired)
	return nil
}

// until sends short requests until the address answers, for at most 10 s. It reports
// whether it answered.
func (s *show) until(to netip.AddrPort) bool {
	ctx, cancel := context.WithTimeout(s.ctx, 10*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		once, stop := context.WithTimeout(ctx, 50*time.Millisecond)
		rep := s.lab.Client().Ask(once, netlab.TCP, to)
		stop()
		if rep.Outcome == netlab.Answered {
			return true
		}
	}
	return false
}

// restart kills the agent while clients send requests and starts it again.
func (s *show) restart() error {
	s.title("5. The agent is killed and started again")
	first := read(s.ctx, s.lab.Node())
	t := startTraffic(s.ctx, s.lab.Client(), webCluster4, webNode6)
	t.wait(s.ctx, 100)
	began := time.Now()
	if err := s.agent.Restart(s.ctx, true); err != nil {
		t.stop()
		return err
	}
	took := time.Since(began)
	t.wait(s.ctx, 100)
	answered, lost := t.stop()
	second := read(s.ctx, s.lab.Node())
	written, ok := second["fairlead_operations_total"]
	s.claim(lost == 0, "kill -9 and a restart, in sync after %s; %d requests during it, %d lost", brief(took), answered+lost, lost)
	s.claim(ok && written == 0, "it compared the kernel with the desired state and wrote %s objects", number(written, ok))
	s.title("The agent's own figures")
	s.table(first, second)
	return nil
}

func number(v float64, ok bool) string {
	if !ok {
		return "an unknown number of"
	}
	return fmt.Sprintf("%.0f", v)
}
