package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/test/netlab/demo"
)

func demoCommand() *cobra.Command {
	var cfg demo.Config
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the agent on examples/ in a lab and show what it does",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cfg.Binary, err = filepath.Abs(cfg.Binary); err != nil {
				return err
			}
			cfg.Out = cmd.OutOrStdout()
			return demo.Run(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Binary, "bin", envOr("FAIRLEAD_BIN", "bin/fairlead"), "the agent")
	f.StringVar(&cfg.Examples, "examples", "examples", "folder of manifests")
	f.StringVar(&cfg.Mode, "mode", "nftables", "data plane")
	return cmd
}
