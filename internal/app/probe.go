package app

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/choose"
	"github.com/fairlead/fairlead/internal/control"
	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/internal/inspect/cli"
)

func probeCommand() *cobra.Command {
	var format string
	var services int
	cmd := &cobra.Command{
		Use: "probe", Short: "Print which modes can run here, which one is recommended, and why", Args: noArgs,
		Long: `probe tries each mode on this kernel and with the programs that are installed, prints the
results, and recommends a mode. --proxy-mode auto takes exactly that mode. It needs no
agent and changes nothing: with the right to create one, it runs in a network namespace of
its own. The kernel may load modules for it.

Exit code 0: a mode is recommended. 1: none works. 2: wrong usage.`,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if services < 0 {
				return usageError{fmt.Errorf("--services is %d, must not be negative", services)}
			}
			r := report(cmd.Context(), services)
			if err := cli.Print(cmd.OutOrStdout(), format, r); err != nil {
				return err
			}
			if r.Failed != "" {
				return &cli.Error{Code: cli.Unwell, Err: fmt.Errorf("no mode is recommended: %s", r.Failed)}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text, json or yaml")
	cmd.Flags().IntVar(&services, "services", 0, "number of Services; 0: that of the agent that runs here")
	return cmd
}

// report tries everything.
func report(ctx context.Context, services int) *choose.Report {
	t := &trial{cfg: plainConfig()}
	r := &choose.Report{Kernel: release(), Services: services, Acceleration: t.accelerate(ctx)}
	if running := askStatus(ctx); running != nil {
		r.Running = running.Place
		if services == 0 {
			r.Services = running.Services
		}
	}
	q, err := facts(ctx, "")
	tried := map[string]choose.Try{}
	for _, mode := range choose.Modes(q.Backend) {
		tried[mode] = t.try(ctx, mode)
		r.Modes = append(r.Modes, costs(tried[mode], r.Services))
	}
	q.Try = func(mode string) choose.Try { return tried[mode] }
	if err == nil {
		r.Recommended, err = choose.Mode(q)
	}
	if err != nil {
		r.Failed = err.Error()
	}
	q.Left = nil
	if fresh, err := choose.Mode(q); err == nil {
		r.Fresh = fresh.Mode
	}
	r.Where = t.where
	r.SayHow()
	return r
}

// costs notes what a mode costs with so many Services, by the figures of
// docs/design/iptables.md for 10 000 Services of 10 endpoints.
func costs(t choose.Try, services int) choose.Try {
	const change = "one change costs about %d ms of CPU with %d Services of 10 endpoints: iptables-restore reads all existing rules"
	msOf10000 := map[string]int{choose.IPTablesLegacy: 366, choose.IPTablesNFT: 109}[t.Mode]
	if ms := msOf10000 * services / 10000; t.Works && ms >= 10 {
		t.Notes = append(t.Notes, fmt.Sprintf(change, ms, services))
	}
	return t
}

// askStatus asks the agent that runs here; nil if there is none.
func askStatus(ctx context.Context) *inspect.Status {
	ctx, cancel := context.WithTimeout(ctx, engineLimit)
	defer cancel()
	body, err := control.Get(ctx, "/status")
	var s inspect.Status
	if err != nil || json.Unmarshal(body, &s) != nil {
		return nil
	}
	return &s
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "of an unknown release"
	}
	return unix.ByteSliceToString(u.Release[:])
}
