package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// report reads lines of results from its standard input and prints the measured changes, one row for each subject and number
// of Services.
func report() error {
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "CPU of the guest\tServices\tendpoints\tfirst sync, s\tone endpoint, ms: median\tleast\tmost\tidle, ms\trestart, s\tobjects written\t")
	one := map[string]map[int]float64{}
	for in := json.NewDecoder(os.Stdin); ; {
		var r record
		if err := in.Decode(&r); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		if r.Changes == nil {
			fmt.Fprintf(tw, "%s\t%d\t%d\tnot measured\t\t\t\t\t\t\t\n", r.Subject, r.Services, r.Endpoints)
			continue
		}
		c, written := r.Changes, "-"
		if c.Written != nil {
			written = fmt.Sprintf("%.0f", *c.Written)
		}
		fmt.Fprintf(tw, "%s\t%d\t%d\t%.1f\t%.2f\t%.2f\t%.2f\t%.1f\t%.1f\t%s\t\n", r.Subject, r.Services, r.Endpoints, r.SyncCPU, c.One.Median, c.One.Min, c.One.Max, c.Idle,
			c.Restart/1000, written)
		if one[r.Subject] == nil {
			one[r.Subject] = map[int]float64{}
		}
		one[r.Subject][r.Services] = c.One.Median
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for n, ours := range one["fairlead:ipvs"] {
		if theirs, both := one["kube-proxy:ipvs"][n]; both && ours > 0 {
			fmt.Printf("%d Services: one change takes kube-proxy %.0f times the CPU time\n", n, theirs/ours)
		}
	}
	return nil
}
