package app

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/config"
)

// groupedUsage prints how to call a command that has kube-proxy's flags: its own
// and those that matter first, those without effect last.
func groupedUsage(cmd *cobra.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s [command]\n\nCommands:\n", cmd.CommandPath())
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() || c.Name() == "help" {
				fmt.Fprintf(&b, "  %-12s %s\n", c.Name(), c.Short)
			}
		}
	}
	groups := []config.FlagGroup{{Title: "Flags", Flags: cmd.Flags()}}
	if cmd.Flags().Lookup("proxy-mode") != nil { // it takes kube-proxy's flags
		groups = config.Groups(cmd.Flags())
	}
	for _, g := range groups {
		if usages := g.Flags.FlagUsagesWrapped(100); usages != "" {
			fmt.Fprintf(&b, "\n%s:\n%s", g.Title, usages)
		}
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	if !strings.Contains(cmd.Long, "Exit code") { // a command with its own codes has listed them
		b.WriteString("\nExit code 0: success. 1: failed. 2: wrong usage.\n")
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}
