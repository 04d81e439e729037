package engine

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// thisNode is the key of the Problems that the engine itself reports about the Node of this
// machine. Problems that the source reports about the object have its origin as the key.
type thisNode struct{}

// nodeOrigin returns the name of the Node object of this machine in model.Event.Origin.
func (e *Engine) nodeOrigin() string { return "Node " + e.p.NodeName }

// nodeUnknown reports whether all sources are synced and none of the cluster's Nodes has
// this node's name.
func (e *Engine) nodeUnknown() bool {
	return len(e.waiting) == 0 && (e.p.View.Cluster || e.st.Cluster()) && e.st.KnownNode() == nil
}

// nodeProblems returns the Problems of missing or wrong data of the Node of this machine, with
// their consequences. A folder with Nodes of other names reports that by itself.
func (e *Engine) nodeProblems() []model.Problem {
	return append(e.nodeLacks(), e.nodeElsewhere()...)
}

// nodeLacks returns the Problems of missing data of the Node of this machine.
func (e *Engine) nodeLacks() []model.Problem {
	now, known := e.st.Node(), e.st.KnownNode()
	say := func(format string, args ...any) []model.Problem {
		return []model.Problem{{Kind: model.OnNode, Object: e.nodeOrigin(), Reason: fmt.Sprintf(format, args...)}}
	}
	nowhere := ""
	if e.p.View.NodePortPrimary && len(e.view.NodePortAddrs) == 0 {
		nowhere = "; NodePorts are closed on every address (--nodeport-addresses is primary)"
	}
	switch {
	case known == nil && e.p.View.Cluster && e.nodeUnknown():
		return say("the API server has no Node of this name, so the zone and the addresses of this node are unknown%s: set --hostname-override to the name of this machine's Node", nowhere)
	case known == nil:
		return nil
	case now == nil:
		return say("was deleted; its zone, addresses and pod CIDRs are used until the agent restarts")
	case e.p.View.NodePortPrimary && len(now.Addrs) == 0 && len(known.Addrs) > 0:
		return say("has no usable address in status.addresses; the last known ones are used until the agent restarts")
	case nowhere != "":
		return say("has no usable address in status.addresses%s until a cloud controller or kubelet sets one, or --bind-address is given", nowhere)
	case e.p.View.Mode == policy.NodeCIDR && len(known.PodCIDRs) == 0:
		return say("has no spec.podCIDRs: no client is detected as a pod until they are set (--detect-local-mode is NodeCIDR)")
	}
	return nil
}

// nodeElsewhere returns the addresses that --nodeport-addresses=primary chose and no
// interface of this machine has: no NodePort answers there. Userspace mode reports each
// socket that it cannot open.
func (e *Engine) nodeElsewhere() (out []model.Problem) {
	host := e.st.Host().Addrs
	if host == nil || !e.p.View.NodePortPrimary || e.p.View.Relayed {
		return nil
	}
	for _, a := range e.view.NodePortAddrs {
		if slices.ContainsFunc(host, func(h model.HostAddr) bool { return h.Prefix.Addr() == a }) {
			continue
		}
		field := "status.addresses"
		if a == e.p.View.BindAddress {
			field = "--bind-address"
		}
		out = append(out, model.Problem{Kind: model.OnNode, Object: e.nodeOrigin(), Field: field,
			Reason: fmt.Sprintf("no interface of this machine has %s, so NodePorts are closed there (--nodeport-addresses is primary): correct the address, or choose others with --nodeport-addresses", a)})
	}
	return out
}
