package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/control"
	"github.com/fairlead/fairlead/internal/inspect/cli"
	"github.com/fairlead/fairlead/internal/wait"
)

// Command builds the command line. Without a subcommand fairlead runs, with
// kube-proxy's flags: replacing the binary's name is enough.
func Command(version string) *cobra.Command {
	root := runCommand(version)
	root.Use = "fairlead"
	root.Short = "A Kubernetes Service proxy: a drop-in for kube-proxy"
	root.Long = `fairlead makes Kubernetes Services work on this node.

It reads Services and EndpointSlices from an API server (--kubeconfig, or in a
cluster no flag at all) or from a folder of manifests (--manifests), and writes
the rules for them to the kernel. It takes kube-proxy's flags and config file.

It writes only what changed, writes nothing on a restart, and repairs changes
that other programs make to its rules.`
	run := runCommand(version)
	run.Use, run.Short, run.Long = "run", "Run the proxy (what fairlead does without a subcommand)", root.Long
	root.AddCommand(run, cleanupCommand(), probeCommand(), wait.Command(), versionCommand(version))
	root.AddCommand(cli.Commands()...)
	root.SuggestionsMinimumDistance = 2 // letters that a misspelt command may differ by
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{suggestFlag(cmd, err)} })
	return root
}

func runCommand(version string) *cobra.Command {
	cmd := &cobra.Command{Args: noArgs, SilenceUsage: true, SilenceErrors: true}
	cmd.SetUsageFunc(groupedUsage)
	flags := config.Register(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l := launch{ctx: cmd.Context(), flags: flags, version: version, told: toldChange()}
		cfg, err := l.load("")
		if errors.Is(err, errNotChosen) { // no fault of the settings
			return err
		}
		if err != nil {
			return usageError{err}
		}
		return dispatch(cmd.Context(), cfg, &l)
	}
	return cmd
}

// dispatch does what the flags ask for: an action that ends, or to run.
func dispatch(ctx context.Context, cfg *config.Config, l *launch) error {
	log := newLogger(cfg.Logging)
	switch {
	case cfg.ShowVersion:
		fmt.Println("fairlead", l.version)
		return nil
	case cfg.WriteConfigTo != "":
		return writeConfig(cfg)
	case cfg.Cleanup:
		return clean(ctx, log.Logger, cleanupFlags{})
	}
	for _, w := range cfg.Warnings {
		log.Warn(w)
	}
	l.tell(log.Logger)
	if cfg.InitOnly {
		return initSysctls(cfg, log.Logger)
	}
	err := serve(ctx, cfg, log, l)
	if c := l.next(ctx, err); c != nil {
		return c.become()
	}
	return err
}

// serve runs an agent until ctx ends, a task fails or the mode is to change.
func serve(ctx context.Context, cfg *config.Config, log logger, l *launch) error {
	leave := queueUp(ctx, cfg, log)
	defer leave()
	heir, err := heirOf(ctx, cfg)
	if err != nil {
		return err
	}
	var socket *control.Socket // a successor takes it when its predecessor has released it
	if !heir {
		if socket, err = takeNamespace(ctx, cfg, l.version, log.Logger); err != nil {
			return err
		}
		leave()
	}
	if socket != nil {
		defer func() { _ = socket.Close() }()
	}
	a, err := newAgent(ctx, cfg, log, l)
	if err != nil && ctx.Err() != nil { // ended before it began: nothing failed
		log.Info("stopped before anything was written")
		return nil
	}
	if err != nil {
		return err
	}
	if heir {
		a.becomeHeir(leave)
	}
	if socket != nil {
		a.inspection.serve(socket)
		a.migration.serve(socket)
		a.add("control socket", socket.Run)
	}
	defer a.inspection.close()
	l.done = a.migration.done
	return a.run(ctx)
}

func writeConfig(cfg *config.Config) error {
	f, err := os.Create(cfg.WriteConfigTo)
	if err != nil {
		return fmt.Errorf("write the config: %w", err)
	}
	if err := cfg.WriteYAML(f); err != nil {
		return errors.Join(fmt.Errorf("write the config to %s: %w", cfg.WriteConfigTo, err), f.Close())
	}
	return f.Close()
}

func versionCommand(version string) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: noArgs,
		Run: func(*cobra.Command, []string) { fmt.Println("fairlead", version) }}
}

// noArgs refuses arguments, and says which command was perhaps meant.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasParent() {
		return usageError{fmt.Errorf("%s takes no arguments and got %q", cmd.CommandPath(), args[0])}
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return usageError{errors.New(text)}
}

// suggestFlag adds to the error of a flag that there is not which one was perhaps
// meant. The names are compared in the way in which cobra compares commands.
func suggestFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	names := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	near := names.SuggestionsFor(unknown.GetSpecifiedName())
	if len(near) == 0 || len(near) > 3 {
		return err
	}
	return fmt.Errorf("%w: did you mean --%s?", err, strings.Join(near, " or --"))
}

// usageError is a mistake in the flags or the config file.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func (e usageError) Error() string {
	return strings.ReplaceAll(e.error.Error(), "\n", "\nfairlead: ") + "\n(--help lists the flags)"
}

// ExitCode is the process's exit code for the error of any command: 0 well,
// 1 failed or not well, 2 wrong usage, 3 no agent that could be asked.
func ExitCode(err error) int {
	if code, asked := cli.ExitCode(err); asked {
		return code
	}
	var usage usageError
	if errors.As(err, &usage) {
		return 2
	}
	return wait.ExitCode(err)
}
