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
		fmt.Sprintf("the agent stops its tasks and restarts in %s mode, in the same process; the rules of %s stay active", p.To, p.From),
		fmt.Sprintf("it writes the new rules and verifies them in the kernel; if they are not verified within %s it returns to %s", verifyLimit, p.From),
		"then it removes the rules of the old mode",
	}
	m.fates(p)
	if affinity > 0 {
		p.Lost = append(p.Lost, fmt.Sprintf("session affinity: %d Services have sessionAffinity ClientIP, and the next connection of a client may go to another endpoint", affinity))
	}
	p.Lost = append(p.Lost, "the agent's counters, and requests to its health, metrics and DNS ports during the restart")
	if old := m.a.cfg.NodePorts; !reflect.DeepEqual(old, cfg.NodePorts) {
		p.Differs = append(p.Differs, fmt.Sprintf("NodePorts answer on %s, until now on %s (--nodeport-addresses)", whereNodePorts(cfg.NodePorts), whereNodePorts(old)))
	}
	if p.To == choose.IPVS {
		p.Differs = append(p.Differs, "port ranges are rejected, and policy Local also applies to pods and to the node where there are local endpoints (docs/modes.md)")
	}
	p.Lasting = fmt.Sprintf("the settings specify %s: change them, or the next start returns to that mode", m.asked)
	switch m.asked {
	case auto:
		p.Lasting = "the settings specify auto, which keeps the mode whose rules are present"
	case p.To:
		p.Lasting = "the settings specify this mode"
	}
}

// fates adds what happens to open connections.
func (m *migration) fates(p *inspect.Migration) {
	switch p.From {
	case choose.IPVS:
		p.Survives = []string{fmt.Sprintf("connections through virtual servers: these accept no new ones, and are removed when the last has ended, or after %s (--ipvs-drain-grace)", m.a.cfg.IPVS.DrainGrace)}
		p.Lost = []string{fmt.Sprintf("connections still open after %s", m.a.cfg.IPVS.DrainGrace)}
	case choose.Userspace:
		n := m.a.rootless.relay.Counts()
		p.Lost = []string{fmt.Sprintf("every connection that the agent relays: now %d TCP connections and %d UDP clients", n.Connections, n.Flows)}
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
