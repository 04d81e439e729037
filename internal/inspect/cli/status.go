package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/inspect"
)

// watchPause is the period of status --watch.
const watchPause = 2 * time.Second

func statusCommand() *cobra.Command {
	q := question{path: "/status"}
	var watch bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show the status of this node's agent",
		Long: `status shows the state of the agent that runs in this network namespace: its sources,
whether the kernel has the desired state, repaired drift, rejected objects and problems.

` + codes,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("status takes no arguments and got %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			for {
				err := status(cmd, &q)
				if _, ours := ExitCode(err); !watch || err != nil && !ours {
					return err
				}
				if err != nil {
					fmt.Fprintln(cmd.ErrOrStderr(), "fairlead:", err)
				}
				if pause(cmd.Context(), watchPause) != nil {
					return nil
				}
			}
		},
	}
	formats(cmd, &q)
	cmd.Flags().BoolVar(&watch, "watch", false, "refresh every 2 s until interrupted")
	return cmd
}

func status(cmd *cobra.Command, q *question) error {
	var s inspect.Status
	if err := q.put(cmd.Context(), cmd.OutOrStdout(), &s); err != nil {
		return err
	}
	if list := s.Unwell(); len(list) > 0 {
		return unwell(list[0])
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
