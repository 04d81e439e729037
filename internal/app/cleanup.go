package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/config"
	kerneliptables "github.com/fairlead/fairlead/internal/kernel/iptables"
)

// cleanupFlags are those of the command cleanup.
type cleanupFlags struct {
	force     bool // also under a running agent
	kubeProxy bool // remove kube-proxy's leftovers, not ours
}

func cleanupCommand() *cobra.Command {
	var f cleanupFlags
	cmd := &cobra.Command{
		Use: "cleanup", Short: "Remove every rule that fairlead has made, in every mode", Args: noArgs,
		Long: `cleanup removes everything fairlead has put into the kernel, also after a crash and
without any memory of what was there. Services stop working on this node. It refuses
while an agent runs, which would write everything again at once.

With --kube-proxy it removes what kube-proxy has left instead, and nothing of
fairlead's: an agent may go on running beside that.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return clean(cmd.Context(), newLogger(config.Logging{}).Logger, f)
		},
	}
	cmd.Flags().BoolVar(&f.force, "force", false, "clean up although an agent runs")
	cmd.Flags().BoolVar(&f.kubeProxy, "kube-proxy", false, "remove what kube-proxy has left, and nothing of fairlead's")
	return cmd
}

// clean does what the flags ask for.
func clean(ctx context.Context, log *slog.Logger, f cleanupFlags) error {
	if f.kubeProxy {
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
func cleanupKubeProxy(context.Context, *slog.Logger) error {
	return errors.New("cleanup --kube-proxy is not built")
}

// Cleanup removes every trace of every mode from the current network namespace.
// It needs no memory of what was there and may be called twice.
func Cleanup(ctx context.Context, log *slog.Logger) error {
	var errs []error
	for _, m := range builtModes() {
		d, _, err := m.open(&config.Config{})
		if errors.Is(err, kerneliptables.ErrNoPrograms) {
			continue // then nobody has written with them
		}
		if err == nil {
			err = d.Cleanup(ctx)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("clean up %s: %w", m.name, err))
			continue
		}
		log.Info("removed what this mode had made", "mode", m.name)
	}
	if err := cleanupDNS(ctx); err != nil {
		errs = append(errs, fmt.Errorf("clean up the DNS interception: %w", err))
	}
	return errors.Join(errs...)
}
