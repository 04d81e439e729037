package cli

import (
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/inspect"
)

func traceCommand() *cobra.Command {
	q := question{path: "/trace"}
	var namespace, from, to string
	var live time.Duration
	cmd := &cobra.Command{
		Use: "trace --from IP[:PORT] --to IP:PORT[/PROTOCOL] | SERVICE[:PORT]", Short: "Trace a new connection through the agent's decisions, without a packet",
		Long: `trace shows step by step what the rules of this node do to the first packet of a new
connection: which source check it passes, which Service it belongs to, where it is sent
and with which source address. It sends no packet and ignores rules of other programs:
for those, see fairlead audit --foreign.

With --live it then waits for a real packet that begins such a connection, and shows
which rules of which tables it traversed and where it ended. For this the agent creates
a temporary nftables table. Rules of iptables-legacy cannot be traced.

Exit code 0: the connection is forwarded to an endpoint. 1: it is not. 2: wrong usage.
3: no agent runs here.`,
		Example: "  fairlead trace --from 10.244.1.5 --to 10.96.0.10:80\n  fairlead trace --from 10.244.1.5 --to shop/web:http",
		Args:    func(cmd *cobra.Command, args []string) error { return waitOf(cmd, args, &live) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			source, err := address(from)
			if err != nil {
				return usage("--from is %q, and must be IP or IP:PORT", from)
			}
			if _, err := inspect.ParseSubject(to, namespace); err != nil {
				return usage("--to: %w", err)
			}
			q.query.Set("q", to)
			q.query.Set("namespace", namespace)
			q.query.Set("from", source.String())
			if live > 0 {
				q.query.Set("live", live.String())
				q.limit += live
			}
			var t inspect.Trace
			if err := q.put(cmd.Context(), cmd.OutOrStdout(), &t); err != nil {
				return err
			}
			if t.Live != nil && t.Live.Ended != "" {
				return unwell(t.Live.Text)
			}
			if t.Outcome != "forward" {
				return &Error{Unwell, errors.New("not forwarded: " + t.Verdict)}
			}
			return nil
		},
	}
	formats(cmd, &q)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of a Service named without one")
	cmd.Flags().StringVar(&from, "from", "", "source address of the packet; a port is ignored")
	cmd.Flags().DurationVar(&live, "live", 0, "wait this long for a real packet and show which rules it traverses, 1m at most; --live alone: 10s")
	cmd.Flags().Lookup("live").NoOptDefVal = "10s"
	cmd.Flags().StringVar(&to, "to", "", "destination of the packet")
	return cmd
}

// address parses IP or IP:PORT. The port is ignored.
func address(text string) (netip.Addr, error) {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr(), nil
	}
	return netip.ParseAddr(text)
}

// waitOf parses the duration of --live 30s. The flag itself does not consume it, because --live may stand
// alone.
func waitOf(cmd *cobra.Command, args []string, live *time.Duration) error {
	if d, err := time.ParseDuration(strings.Join(args, " ")); err == nil && cmd.Flags().Changed("live") {
		*live = d
		return nil
	}
	if len(args) > 0 {
		return usage("trace takes no arguments and got %q: use --from and --to", args[0])
	}
	return nil
}
