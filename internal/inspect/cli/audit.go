package cli

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/inspect"
)

func auditCommand() *cobra.Command {
	q := question{path: "/audit"}
	var foreign, repair bool
	cmd := &cobra.Command{
		Use: "audit", Short: "Have the agent compare the kernel with what it should hold",
		Long: `audit does now what the agent does every hour: it reads everything that is ours in the
kernel and repairs what is not as it should be. Changes of Services go first, and the next
audit comes after twenty times what the last one took, a minute at most: asked before,
the last one's answer is told again.

With --repair=false nothing is repaired by it. The agent still repairs what it notices in
other ways: in nftables mode every change of its tables, at once; else with the next
change of a Service, or with the next audit.

With --foreign it also names the rules of others, in nftables and in iptables of both
backends, that can end the way of a packet to a Service or an endpoint, or let it pass by
our translation. Verdict maps are not looked into.

` + codes,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("audit takes no arguments and got %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if foreign {
				q.query.Set("foreign", "true")
			}
			q.query.Set("repair", strconv.FormatBool(repair))
			q.limit = 100 * time.Second
			var a inspect.Audit
			if err := q.put(cmd.Context(), cmd.OutOrStdout(), &a); err != nil {
				return err
			}
			if bad := a.Unwell(); bad != "" {
				return unwell(bad)
			}
			return nil
		},
	}
	formats(cmd, &q)
	cmd.Flags().BoolVar(&repair, "repair", true, "repair what differs; false: only name it")
	cmd.Flags().BoolVar(&foreign, "foreign", false, "name the rules of others that would act on packets of Services")
	return cmd
}
