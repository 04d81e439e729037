package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/test/scenarios"
	"github.com/fairlead/fairlead/test/scenarios/kit"
)

var errFailed = errors.New("some scenarios failed")

func conformanceCommand() *cobra.Command {
	var cfg kit.Config
	var run, binary, faults string
	var verbose bool
	var rec record
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Run every scenario of test/scenarios and print the matrix",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cfg.Scenarios, err = kit.Load(scenarios.FS); err != nil {
				return err
			}
			if run != "" {
				if cfg.Run, err = regexp.Compile(run); err != nil {
					return err
				}
			}
			if binary, err = filepath.Abs(binary); err != nil {
				return err
			}
			if _, err := os.Stat(binary); err != nil {
				return fmt.Errorf("find the agent (build it first, or set --bin): %w", err)
			}
			cfg.SubjectName = "fairlead"
			cfg.NewSubject = func() kit.Subject { return &kit.Fairlead{Binary: binary, Env: []string{"FAIRLEAD_FAULTS=" + faults}} }
			cfg.Done = progress(cmd.OutOrStdout(), verbose)
			if rec.dir != "" {
				if ended, err := rec.apply(cmd.OutOrStdout(), &cfg); ended || err != nil {
					return err
				}
				defer func() { err = errors.Join(err, cfg.Record.Close()) }()
			}
			start := time.Now()
			results, err := kit.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout())
			if !kit.Matrix(cmd.OutOrStdout(), results) {
				return errFailed
			}
			fmt.Fprintf(cmd.OutOrStdout(), "in %s\n", time.Since(start).Round(time.Second))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&cfg.Modes, "mode", []string{"nftables"}, "data planes to run")
	f.StringVar(&run, "run", "", "only variants whose name (scenario/family/protocol) matches this expression")
	f.StringVar(&binary, "bin", envOr("FAIRLEAD_BIN", "bin/fairlead"), "the agent")
	f.StringVar(&faults, "faults", os.Getenv("FAIRLEAD_FAULTS"), "share of kernel commits that fail in the agent, such as 0.1; needs a --bin that is built with -tags faults")
	f.IntVar(&cfg.Labs, "labs", 4, "number of concurrent labs")
	f.IntVar(&cfg.Part, "part", 0, "index of the part of the variants to run, from 0, when several machines share them")
	f.IntVar(&cfg.Parts, "parts", 0, "number of parts; 0 = this machine runs all")
	f.BoolVar(&cfg.RestartBetweenSteps, "restart-between-steps", false, "restart the agent between any two steps")
	rec.flags(f)
	f.BoolVarP(&verbose, "verbose", "v", false, "a line for each variant, failures at once")
	return cmd
}

// progress prints a mark (or a line) as each variant ends.
func progress(w io.Writer, verbose bool) func(kit.Result) {
	return func(r kit.Result) {
		mark, word := ".", "pass"
		if r.NotApplicable != "" {
			mark, word = "-", "not applicable"
		} else if r.Err != nil {
			mark, word = "F", "FAIL"
		}
		if !verbose {
			fmt.Fprint(w, mark)
			return
		}
		fmt.Fprintf(w, "%-14s %5.1fs  %s %s\n", word, r.Took.Seconds(), r.Variant.Name(), r.Mode)
		if r.Err != nil {
			fmt.Fprintf(w, "   %v\n", r.Err)
		}
	}
}

func envOr(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}
