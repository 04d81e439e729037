package app

import (
	"fmt"
	"reflect"

	"github.com/fairlead/fairlead/internal/choose"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/inspect"
)

// say describes a change in words. affinity is the number of Services with session
// affinity.
func (m *migration) say(p *inspect.Migration, cfg *config.Config, affinity int) {
	p.Steps = []string{
		fmt.Sprintf("the agent ends its tasks and starts anew in %s mode, in the same process; the rules of %s go on serving", p.To, p.From),
		fmt.Sprintf("it writes its rules and compares them with the kernel; if they are not in and the same within %s it goes back to %s", verifyLimit, p.From),
		"then it removes what the old mode has left",
	}
	m.fates(p)
	if affinity > 0 {
		p.Lost = append(p.Lost, fmt.Sprintf("which endpoint a client is to stay with: %d Services have sessionAffinity ClientIP, and a client's next connection may come to another endpoint", affinity))
	}
	p.Lost = append(p.Lost, "the agent's counters, and what is asked of its health, metrics and DNS ports in the moment in which it starts anew")
	if old := m.a.cfg.NodePorts; !reflect.DeepEqual(old, cfg.NodePorts) {
		p.Differs = append(p.Differs, fmt.Sprintf("NodePorts answer on %s, so far on %s (--nodeport-addresses)", whereNodePorts(cfg.NodePorts), whereNodePorts(old)))
	}
	if p.To == choose.IPVS {
		p.Differs = append(p.Differs, "ranges of ports are refused, and policy Local holds for pods and the node as well where there are local endpoints (docs/modes.md)")
	}
	p.Lasting = fmt.Sprintf("the settings say %s: change them, or the next start goes back to that", m.asked)
	switch m.asked {
	case auto:
		p.Lasting = "the settings say auto, which keeps the mode of which rules are here"
	case p.To:
		p.Lasting = "the settings say so, too"
	}
}

// fates adds what happens to open connections.
func (m *migration) fates(p *inspect.Migration) {
	switch p.From {
	case choose.IPVS:
		p.Survives = []string{fmt.Sprintf("connections through virtual servers: these take no new ones, and go when the last has ended, or after %s (--ipvs-drain-grace)", m.a.cfg.IPVS.DrainGrace)}
		p.Lost = []string{fmt.Sprintf("connections that are open after %s", m.a.cfg.IPVS.DrainGrace)}
	case choose.Userspace:
		n := m.a.rootless.relay.Counts()
		p.Lost = []string{fmt.Sprintf("every connection that the agent carries: %d of TCP, %d clients of UDP now", n.Connections, n.Flows)}
	default:
		p.Survives = []string{"open connections: conntrack translates them, not the rules"}
	}
}

func whereNodePorts(n config.NodePorts) string {
	switch {
	case n.Primary:
		return "the node's primary addresses"
	case len(n.CIDRs) == 0:
		return "all addresses of the node"
	}
	return fmt.Sprint(n.CIDRs)
}
