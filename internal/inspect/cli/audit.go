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
		Use: "audit", Short: "Compare the kernel with the desired state, and repair differences",
		Long: `audit runs the agent's hourly audit now: it reads all objects of the agent in the kernel
and repairs differences from the desired state. Changes of Services have priority. The
next audit is possible after twenty times the duration of the last one, at most a minute;
before that, the command prints the last result again.

With --repair=false this audit repairs nothing. The agent still repairs drift that it
detects in other ways: in nftables mode every change of its tables, at once; in other
modes with the next audit.

With --foreign it also lists rules of other programs, in nftables and in iptables of both
backends, that can end the path of a packet to a Service or an endpoint, or exempt it from
Fairlead's translation. Verdict maps are not parsed.

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
	cmd.Flags().BoolVar(&repair, "repair", true, "repair differences; false: only list them")
	cmd.Flags().BoolVar(&foreign, "foreign", false, "list rules of other programs that affect packets of Services")
	return cmd
}
