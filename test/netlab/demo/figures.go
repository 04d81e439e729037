package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/scenarios/kit"
)

// figures holds the values of the agent's metrics at one moment.
type figures map[string]float64

// The metrics in the table; histograms by their _sum and _count.
var figureNames = []string{
	"fairlead_operations_total", "fairlead_kernel_reads_total", "fairlead_drift_repaired_total", "fairlead_conflicts_total",
	"fairlead_quarantined_objects", "fairlead_syncs_total",
	"kubeproxy_sync_proxy_rules_duration_seconds_sum", "kubeproxy_sync_proxy_rules_duration_seconds_count",
	"fairlead_receive_to_commit_duration_seconds_sum", "fairlead_receive_to_commit_duration_seconds_count",
	"process_resident_memory_bytes", "process_cpu_seconds_total",
}

// read scrapes the agent from inside the node's namespace. A metric that is not served (yet) is absent.
func read(ctx context.Context, node *netlab.Host) figures {
	f := figures{}
	for _, name := range figureNames {
		if v, err := kit.Metric(ctx, node, name); err == nil {
			f[name] = v
		}
	}
	return f
}

func (f figures) count(name string) string {
	v, ok := f[name]
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.0f", v)
}

// mean returns a histogram's average.
func (f figures) mean(name string) string {
	n := f[name+"_count"]
	if n == 0 {
		return "-"
	}
	return brief(time.Duration(f[name+"_sum"] / n * float64(time.Second)))
}

func (f figures) mebibytes(name string) string {
	v, ok := f[name]
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.1f MiB", v/(1<<20))
}

func (f figures) seconds(name string) string {
	v, ok := f[name]
	if !ok {
		return "-"
	}
	return brief(time.Duration(v * float64(time.Second)))
}

func (p *page) table(first, second figures) {
	p.row("", "first run", "after restart")
	for _, r := range []struct {
		label string
		cell  func(figures) string
	}{
		{"syncs", func(f figures) string { return f.count("fairlead_syncs_total") }},
		{"one sync, on average", func(f figures) string { return f.mean("kubeproxy_sync_proxy_rules_duration_seconds") }},
		{"change seen to change in kernel", func(f figures) string { return f.mean("fairlead_receive_to_commit_duration_seconds") }},
		{"kernel objects written", func(f figures) string { return f.count("fairlead_operations_total") }},
		{"kernel reads", func(f figures) string { return f.count("fairlead_kernel_reads_total") }},
		{"objects repaired", func(f figures) string { return f.count("fairlead_drift_repaired_total") }},
		{"objects quarantined", func(f figures) string { return f.count("fairlead_quarantined_objects") }},
		{"CPU, in all", func(f figures) string { return f.seconds("process_cpu_seconds_total") }},
		{"memory", func(f figures) string { return f.mebibytes("process_resident_memory_bytes") }},
	} {
		p.row(r.label, r.cell(first), r.cell(second))
	}
}
