package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// row is one measure: how to read it from a subject's records, and the goal for its ratio to kube-proxy.
type row struct {
	name  string
	value func(results) (float64, bool)
	goals map[string]goal // by peer and size
}

// results are the combined records of one subject at one size.
type results struct {
	cold, restart *startRecord
	single        *singleRecord
	churn         *churnRecord
	connect       *connectRecord
	failed        string
}

// report prints a table for each size and writes it to a file next to the records.
func (s *sink) report(w io.Writer, o options) error {
	var b strings.Builder
	for _, n := range o.sizes {
		s.table(&b, o, n)
	}
	fmt.Fprintf(&b, "\n%s", notes)
	path := strings.TrimSuffix(o.out, ".jsonl") + ".md"
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s\nrecords: %s\ntables:  %s\n", b.String(), o.out, path)
	return err
}

func (s *sink) table(b *strings.Builder, o options, n int) {
	size := fmt.Sprintf("%d x %d", n, o.endpoints)
	fmt.Fprintf(b, "\n### %s (Services x endpoints)\n\n| |", size)
	var peers []string
	all := map[string]results{}
	for _, name := range o.subjects {
		fmt.Fprintf(b, " %s |", name)
		all[name] = s.results(name, n)
		if name != "fairlead" {
			peers = append(peers, name)
		}
	}
	if _, ours := all["fairlead"]; ours {
		for _, p := range peers {
			fmt.Fprintf(b, " %s / fairlead |", p)
		}
		b.WriteString(" goal |")
	}
	fmt.Fprintf(b, "\n|%s\n", strings.Repeat("---|", strings.Count(lastLine(b.String()), "|")-1))
	for _, r := range rows {
		r.write(b, o, peers, all, size)
	}
	for _, name := range o.subjects {
		if f := all[name].failed; f != "" {
			fmt.Fprintf(b, "\n**%s failed:** %s\n", name, f)
		}
	}
}

func (r row) write(b *strings.Builder, o options, peers []string, all map[string]results, size string) {
	if !slices.ContainsFunc(o.subjects, func(name string) bool { _, ok := r.value(all[name]); return ok }) {
		return // no requested subject has this measure
	}
	fmt.Fprintf(b, "| %s |", r.name)
	for _, name := range o.subjects {
		v, ok := r.value(all[name])
		fmt.Fprintf(b, " %s |", figure(v, ok))
	}
	if mine, ours := all["fairlead"]; ours {
		v, ok := r.value(mine)
		for _, p := range peers {
			pv, pok := r.value(all[p])
			fmt.Fprintf(b, " %s |", ratio(pv, v, pok && ok))
		}
		peer := o.reference()
		fmt.Fprintf(b, " %s |", r.goals[peer+" "+size].verdict(v, ok, func() (float64, bool) { return r.value(all[peer]) }))
	}
	b.WriteString("\n")
}

// reference returns the subject with which goals are compared: the first peer, or without one the default peer. With
// additional flags there is no default, and it returns "".
func (o options) reference() string {
	for _, s := range o.subjects {
		if s != "fairlead" {
			return s
		}
	}
	if len(o.flags) > 0 {
		return ""
	}
	return "nftables"
}

// results combines the records; a later one of the same kind replaces an earlier one.
func (s *sink) results(subject string, n int) (all results) {
	for _, r := range s.records {
		if r.Subject != subject || r.N != n {
			continue
		}
		switch {
		case r.Cold != nil:
			all.cold = r.Cold
		case r.Restart != nil:
			all.restart = r.Restart
		case r.Single != nil:
			all.single = r.Single
		case r.Churn != nil:
			all.churn = r.Churn
		case r.Connect != nil:
			all.connect = r.Connect
		case r.Failed != "":
			all.failed = r.Failed
		}
	}
	return all
}

func figure(v float64, ok bool) string {
	switch {
	case !ok:
		return "-"
	case v == 0:
		return "0"
	case v < 0.1:
		return fmt.Sprintf("%.4f", v)
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}

func ratio(peer, mine float64, ok bool) string {
	if !ok || mine == 0 {
		return "-"
	}
	if r := peer / mine; r < 20 {
		return fmt.Sprintf("%.1fx", r)
	}
	return fmt.Sprintf("%.0fx", peer/mine)
}

func lastLine(s string) string { return s[strings.LastIndexByte(s, '\n')+1:] }
