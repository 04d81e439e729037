package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/test/scenarios/kit"
)

// record holds the flags of conformance that are for a run in parts.
type record struct {
	dir, commit, only string
	also              []string
	list, report      bool
}

func (r *record) flags(f *pflag.FlagSet) {
	f.StringVar(&r.dir, "record", "", "keep a line for each variant in this folder; test/vm/conformance.sh continues from it")
	f.StringVar(&r.commit, "commit", "unknown", "commit that the agent was built from, for --record")
	f.StringSliceVar(&r.also, "also", nil, "further commits whose passes count, for --list and --report")
	f.StringVar(&r.only, "only", "", "file with the full names of the variants to run, one per line, in this order")
	f.BoolVar(&r.list, "list", false, "print the names of the variants without a pass in the record, and exit")
	f.BoolVar(&r.report, "report", false, "print the matrix of the record, and exit")
}

// apply opens the record; ended means that no variant is left to run.
func (r *record) apply(w io.Writer, cfg *kit.Config) (ended bool, err error) {
	if r.only != "" {
		names, err := os.ReadFile(r.only)
		if err != nil {
			return false, err
		}
		cfg.Only = map[string]int{}
		for i, name := range strings.Fields(string(names)) {
			cfg.Only[name] = i + 1
		}
	}
	kept, err := kit.OpenRecord(r.dir, r.commit, r.also...)
	if err != nil {
		return false, err
	}
	if !r.list && !r.report {
		cfg.Record = kept
		return false, nil
	}
	results, todo := kept.Known(*cfg)
	if r.list {
		fmt.Fprintln(w, strings.Join(todo, "\n"))
		return true, kept.Close()
	}
	return true, errors.Join(r.print(w, results, todo), kept.Close())
}

func (r *record) print(w io.Writer, results []kit.Result, todo []string) error {
	held := kit.Matrix(w, results)
	at := map[string]int{}
	for _, res := range results {
		at[res.Commit]++
	}
	for commit, n := range at {
		fmt.Fprintf(w, "%d at %s\n", n, commit)
	}
	if !held || len(todo) > 0 {
		return fmt.Errorf("%d variants did not pass, or did not run", len(todo))
	}
	return nil
}
