package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// table prints results, one row a size.
func table(r io.Reader, w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "mode\tservices x endpoints\tfull build\tobjects\tone endpoint\tobjects\t100 services\trestart\tobjects\taudit\tlive heap\tRSS\tpeak\treads\t")
	dec := json.NewDecoder(r)
	for {
		var x result
		if dec.Decode(&x) != nil {
			break
		}
		fmt.Fprintf(tw, "%s\t%d x %d\t%.0f\t%d\t%.3f\t%.1f\t%.1f\t%.0f\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%d\t\n", x.Mode, x.Services, x.Endpoints, x.BuildCPU, x.BuildOps,
			x.OneCPU, x.OneOps, x.HundredCPU, x.RestartCPU, x.RestartOps, x.AuditCPU, x.HeapMB, x.RSSMB, x.PeakMB, x.SteadyReads)
	}
	_ = tw.Flush() // to a terminal; an error cannot be handled
}

// tableInside prints the cost of one changed endpoint inside large Services.
func tableInside(r io.Reader, w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "mode\tService\tCPU\twall\tpolicy\tapply\tobjects\t")
	dec := json.NewDecoder(r)
	for {
		var x insideResult
		if dec.Decode(&x) != nil {
			break
		}
		fmt.Fprintf(tw, "%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f\t\n", x.Mode, x.Inside, x.CPU, x.Wall, x.Policy, x.Applied, x.Ops)
	}
	_ = tw.Flush() // to a terminal; an error cannot be handled
}
