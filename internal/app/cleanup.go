package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/dataplane/offload"
	"github.com/fairlead/fairlead/internal/dataplane/userspace"
	"github.com/fairlead/fairlead/internal/dns/intercept"
	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/kernel/sysctl"
	"github.com/fairlead/fairlead/internal/relay"
	"github.com/fairlead/fairlead/internal/takeover"
)

// cleanupFlags are those of the command cleanup.
type cleanupFlags struct {
	force     bool // also under a running agent
	kubeProxy bool // remove kube-proxy's leftovers, not fairlead's
}

func cleanupCommand() *cobra.Command {
	var f cleanupFlags
	cmd := &cobra.Command{
		Use: "cleanup", Short: "Remove every rule that fairlead wrote, in every mode", Args: noArgs,
		Long: `cleanup removes everything that fairlead has written to the kernel, also after a
crash; it needs no saved state. Services stop working on this node. It refuses to run
while an agent runs, because the agent would write everything again at once.

With --kube-proxy it removes the rules that kube-proxy left, and none of fairlead's:
an agent may keep running. It refuses to run while kube-proxy runs.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return clean(cmd.Context(), newLogger(config.Logging{}).Logger, f)
		},
	}
	cmd.Flags().BoolVar(&f.force, "force", false, "clean up even if an agent runs (with --kube-proxy: even if kube-proxy runs)")
	cmd.Flags().BoolVar(&f.kubeProxy, "kube-proxy", false, "remove the rules that kube-proxy left, and none of fairlead's")
	return cmd
}

// clean does what the flags ask for.
func clean(ctx context.Context, log *slog.Logger, f cleanupFlags) error {
	if f.kubeProxy {
		if seen := liveKubeProxy(ctx); seen != "" && !f.force {
			return fmt.Errorf("kube-proxy runs in this network namespace (%s) and would write its rules again: %s, or use --force", seen, takeover.StopKubeProxy)
		}
		return cleanupKubeProxy(ctx, log)
	}
	if !f.force {
		if err := mayClean(ctx); err != nil {
			return err
		}
	}
	return Cleanup(ctx, log)
}

// cleanupKubeProxy removes what kube-proxy has left in the kernel, whatever its mode.
func cleanupKubeProxy(ctx context.Context, log *slog.Logger) error {
	k, err := openKernels()
	if err != nil {
		return err
	}
	ours, unread := k.Find(ctx, takeover.Fairlead)
	alone := len(ours) == 0 && unread == nil
	if !alone {
		k.Planes.RemoveCounters = nil // the agent's own rules may feed them
	}
	if _, err := (cleaning{log, k, takeover.KubeProxy, alone}).run(ctx); err != nil {
		return err
	}
	return unread
}

// Cleanup removes every trace of every mode from the current network namespace.
// It needs no memory of what was there and may be called twice.
func Cleanup(ctx context.Context, log *slog.Logger) error {
	k, err := openKernels()
	if err != nil {
		return err
	}
	theirs, err := k.Find(ctx, takeover.KubeProxy)
	if len(theirs) > 0 {
		k.Planes.RemoveCounters = nil // it has the same names for its own
	}
	problems := []error{err}
	found, err := cleaning{log, k, takeover.Fairlead, len(theirs) == 0}.run(ctx)
	problems = append(problems, err)
	problems = append(problems, offload.Remove(ctx, k.NFT))
	if err := cleanupDNS(ctx); err != nil {
		problems = append(problems, fmt.Errorf("clean up the DNS interception: %w", err))
	}
	routes, err := cleanupRoutes()
	if routes > 0 {
		found = true
		log.Info("removed", "what", fmt.Sprintf("%d local routes and rules of userspace mode", routes))
	}
	problems = append(problems, err)
	addrs, err := intercept.RemoveAddrs()
	for _, a := range addrs {
		log.Info("removed", "what", "fairlead's DNS address "+a.String()+" from lo")
	}
	problems = append(problems, err)
	if !found && len(addrs) == 0 && errors.Join(problems...) == nil {
		log.Info("nothing to remove: this network namespace has no rules of fairlead")
	}
	return errors.Join(problems...)
}

// cleanupRoutes removes what userspace mode has left.
func cleanupRoutes() (int, error) {
	routes, err := link.OpenLocals()
	if err != nil {
		return 0, err
	}
	n, err := userspace.CleanRoutes(routes)
	returns, e := link.OpenReturns(relay.FirstSourcePort, relay.LastSourcePort)
	if e != nil {
		return n, errors.Join(err, e)
	}
	rules, e := returns.Remove()
	ports, e2 := link.OpenPorts()
	if e2 != nil {
		return n + rules, errors.Join(err, e, e2)
	}
	taken, e2 := ports.Remove()
	return n + rules + taken, errors.Join(err, e, e2)
}

// cleaning removes everything that an owner has. last reports that no other proxy is here.
type cleaning struct {
	log     *slog.Logger
	kernels takeover.Kernels
	owner   string
	last    bool
}

// run logs each removal in one line. If no other proxy is left then, packets
// from outside for 127.0.0.0/8 must not be let in any longer: the rule that stops
// them goes with the others.
func (c cleaning) run(ctx context.Context) (found bool, err error) {
	list, err := c.kernels.Find(ctx, c.owner)
	problems := []error{err}
	if c.last && len(list) > 0 {
		if change := sysctl.CloseRouteLocalnet(sysctl.New()); change != nil && change.Err != nil {
			c.log.Warn("cannot set a sysctl: hosts on the same link can reach programs that listen on 127.0.0.1 only", "name", change.Name, "value", change.To, "error", change.Err)
		} else if change != nil {
			c.log.Info("reset a sysctl: no rule is left that drops packets from other hosts to 127.0.0.1", "name", change.Name, "to", change.To)
		}
	}
	for _, l := range list {
		if err := l.Remove(ctx); err != nil {
			problems = append(problems, err)
			continue
		}
		c.log.Info("removed", "what", l.String())
	}
	if c.owner == takeover.KubeProxy && len(list) == 0 && err == nil {
		c.log.Info("nothing to remove: this network namespace has no rules of kube-proxy")
	}
	return len(list) > 0, errors.Join(problems...)
}
