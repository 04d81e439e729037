package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/test/rootless"
)

func rootlessCommand() *cobra.Command {
	var cfg rootless.Config
	cmd := &cobra.Command{
		Use:   "demo-rootless",
		Short: "Run the agent in userspace mode on this machine, without any privilege",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cfg.Agent, err = filepath.Abs(cfg.Agent); err != nil {
				return err
			}
			if cfg.Self, err = os.Executable(); err != nil {
				return err
			}
			cfg.Out = cmd.OutOrStdout()
			return rootless.Run(cmd.Context(), cfg)
		},
	}
	cmd.Flags().StringVar(&cfg.Agent, "bin", envOr("FAIRLEAD_BIN", "bin/fairlead"), "the agent")
	cmd.Flags().StringVar(&cfg.Manifests, "examples", "examples/rootless", "folder of manifests")
	return cmd
}

func backendCommand() *cobra.Command {
	return &cobra.Command{
		Use: "backend NAME ADDRESS", Short: "Answer HTTP requests with a name", Args: cobra.ExactArgs(2), Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error { return rootless.Serve(cmd.Context(), args[0], args[1]) },
	}
}
