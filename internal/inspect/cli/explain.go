package cli

import (
	"net/netip"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/inspect"
)

func explainCommand() *cobra.Command {
	q := question{path: "/explain"}
	var namespace, from string
	var flows bool
	cmd := &cobra.Command{
		Use:   "explain SERVICE[:PORT] | IP:PORT[/PROTOCOL] | :NODEPORT",
		Short: "Show the outcome of connections to a Service, and the reason",
		Long: `explain shows the decision of this node's agent about a Service, or about packets to an
address: which clients can connect, which endpoints receive new connections, and for each
other endpoint the reason why it receives none.

With --flows it also counts the open connections by endpoint, as the kernel tracks them
(nf_conntrack), and how many of them are unanswered. This reads the kernel's whole
connection table, at most once a second.

` + codes,
		Example: "  fairlead explain shop/web\n  fairlead explain shop/web:http --from 10.244.1.5\n  fairlead explain 10.96.0.10:80/TCP\n  fairlead explain :30080\n  fairlead explain shop/web --flows",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("explain takes one argument: [NAMESPACE/]SERVICE[:PORT], IP:PORT[/PROTOCOL] or :NODEPORT")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := inspect.ParseSubject(args[0], namespace); err != nil {
				return &Error{Usage, err}
			}
			if _, err := netip.ParseAddr(from); from != "" && err != nil {
				return usage("--from is %q, and must be an IP address", from)
			}
			q.query.Set("q", args[0])
			q.query.Set("namespace", namespace)
			q.query.Set("from", from)
			q.query.Set("flows", strconv.FormatBool(flows))
			var e inspect.Explanation
			if err := q.put(cmd.Context(), cmd.OutOrStdout(), &e); err != nil {
				return err
			}
			if !e.Well {
				return unwell(e.Summary)
			}
			return nil
		},
	}
	formats(cmd, &q)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of a Service named without one")
	cmd.Flags().BoolVar(&flows, "flows", false, "count the open connections by endpoint")
	cmd.Flags().StringVar(&from, "from", "", "explain it for connections from this address")
	return cmd
}
