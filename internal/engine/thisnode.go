package engine

import (
	"fmt"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// thisNode is the key of what the engine itself reports about the Node of this machine;
// what the source reports about the object has its origin as the key.
type thisNode struct{}

// nodeOrigin is what sources call the Node object of this machine in model.Event.Origin.
func (e *Engine) nodeOrigin() string { return "Node " + e.p.NodeName }

// nodeUnknown tells that all sources are in, and that none of the cluster's Nodes has
// this node's name.
func (e *Engine) nodeUnknown() bool {
	return len(e.waiting) == 0 && (e.p.View.Cluster || e.st.Cluster()) && e.st.KnownNode() == nil
}

// nodeProblems returns what of the Node of this machine is missing, and what is done
// without it. A folder with Nodes of other names reports that by itself.
func (e *Engine) nodeProblems() []model.Problem {
	now, known := e.st.Node(), e.st.KnownNode()
	say := func(format string, args ...any) []model.Problem {
		return []model.Problem{{Kind: model.OnNode, Object: e.nodeOrigin(), Reason: fmt.Sprintf(format, args...)}}
	}
	nowhere := ""
	if e.p.View.NodePortPrimary && len(e.view.NodePortAddrs) == 0 {
		nowhere = "; NodePorts are open nowhere (--nodeport-addresses is primary)"
	}
	switch {
	case known == nil && e.p.View.Cluster && e.nodeUnknown():
		return say("the API server has no Node of this name, so that no zone and no address of this node is known%s: set --hostname-override to the name of this machine's Node", nowhere)
	case known == nil:
		return nil
	case now == nil:
		return say("is gone; its zone, addresses and pod CIDRs stay in force until the agent restarts")
	case e.p.View.NodePortPrimary && len(now.Addrs) == 0 && len(known.Addrs) > 0:
		return say("has no usable address in status.addresses; the last known ones stay in force until the agent restarts")
	case nowhere != "":
		return say("has no usable address in status.addresses%s until a cloud controller or kubelet sets one, or --bind-address is given", nowhere)
	case e.p.View.Mode == policy.NodeCIDR && len(known.PodCIDRs) == 0:
		return say("has no spec.podCIDRs: nothing counts as a pod until it has (--detect-local-mode is NodeCIDR)")
	}
	return nil
}
