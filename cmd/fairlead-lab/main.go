// Command fairlead-lab demonstrates and tests what the agent does, in network namespaces of its own: `demo` for people, `conformance` for
// every Service semantic in every mode. `make demo` and `make conformance` call it. It needs root, except for `demo-rootless`.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{Use: "fairlead-lab", Short: "Try Fairlead in network namespaces", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(demoCommand(), rootlessCommand(), backendCommand(), conformanceCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "fairlead-lab:", err)
		os.Exit(1)
	}
}
