package ipvs

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/internal/kernel/ipvs"
)

// Theirs removes the virtual servers that a kube-proxy left on the node's own addresses, for its NodePorts. Those on the device are
// recognised by their address (Retire, CleanDevice). For the others kube-proxy keeps no account except the ports in its ipsets. Virtual
// servers in the account of this agent are excluded.
type Theirs struct {
	d     *Driver
	ports map[ipvs.NodePort]bool
}

// Theirs returns the virtual servers of some NodePorts.
func (d *Driver) Theirs(ports map[ipvs.NodePort]bool) Theirs { return Theirs{d, ports} }

// Retire does what Driver.Retire does.
func (t Theirs) Retire(ctx context.Context) (connections int, err error) {
	err = t.each(ctx, func(v ipvs.VirtualKey) error {
		n, err := t.d.retire(ctx, v)
		connections += n
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("retire kube-proxy's NodePorts: %w", err)
	}
	return connections, nil
}

// Clean deletes the virtual servers.
func (t Theirs) Clean(ctx context.Context) error {
	if err := t.each(ctx, func(v ipvs.VirtualKey) error { return t.d.p.IPVS.DelVirtual(ctx, v) }); err != nil {
		return fmt.Errorf("clean up kube-proxy's NodePorts: %w", err)
	}
	return nil
}

func (t Theirs) each(ctx context.Context, do func(ipvs.VirtualKey) error) error {
	if len(t.ports) == 0 {
		return nil
	}
	both := allFamilies()
	r := t.d.reader(nil)
	r.families = both[:]
	if err := r.owned(ctx); err != nil {
		return err
	}
	virtuals, err := ipvs.List(ctx, t.d.p.IPVS, ipvs.Wanted{Is: func(v *ipvs.Virtual) bool {
		return !r.mine[v.VirtualKey] && !within(t.d.p.Exclude, v.Addr) && t.ports[ipvs.NodePort{Protocol: v.Protocol, Port: v.Port}]
	}})
	if err != nil {
		return err
	}
	for i := range virtuals {
		if err := do(virtuals[i].VirtualKey); err != nil {
			return err
		}
	}
	return nil
}
