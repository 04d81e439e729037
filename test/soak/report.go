package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

// report is the result of the run.
type report struct {
	w       *world
	t       *traffic
	log     string
	took    time.Duration
	samples []sample

	writes, syncFailures, conflicts, drift, quarantined, rebuilds float64
	elements, unused                                              int
	differences                                                   []string
	again                                                         float64    // operations after a restart
	within                                                        [4]float64 // shares of changes, see boundsOf
}

// boundsOf returns the bounds of the time from reading a change until it is in the kernel, in seconds.
func boundsOf() [4]string { return [4]string{"0.01", "0.1", "1", "5"} }

// atTheEnd compares the actual state of the kernel with what a second agent writes for the same manifests in a lab of its own,
// and restarts the first agent.
func (r *report) atTheEnd(ctx context.Context, a *agent, scratch string) error {
	before := r.writes
	for name, to := range map[string]*float64{"fairlead_operations_total": &r.writes, "fairlead_conflicts_total": &r.conflicts,
		"fairlead_drift_repaired_total": &r.drift, "fairlead_quarantined_objects": &r.quarantined,
		"kubeproxy_sync_proxy_rules_nftables_sync_failures_total": &r.syncFailures, "fairlead_rebuilds_total": &r.rebuilds} {
		v, err := a.metric(ctx, name)
		if err != nil {
			return err
		}
		*to = v
	}
	r.writes -= before
	for i, bound := range boundsOf() {
		share, err := a.within(ctx, bound)
		if err != nil {
			return err
		}
		r.within[i] = share
	}
	have, err := dump(ctx, a.lab.Node())
	if err != nil {
		return err
	}
	want, err := r.fromScratch(ctx, a, filepath.Join(scratch, "fresh.log"))
	if err != nil {
		return err
	}
	r.differences, r.unused = differences(have, want)
	for _, list := range want.elements {
		r.elements += len(list)
	}
	if err := a.stop(); err != nil {
		return err
	}
	if err := a.start(ctx); err != nil {
		return err
	}
	if r.again, err = a.metric(ctx, "fairlead_operations_total"); err != nil {
		return err
	}
	return a.stop()
}

func (r *report) fromScratch(ctx context.Context, a *agent, log string) (_ *ruleset, err error) {
	lab, err := netlab.New(ctx, netlab.Config{PodsPerNode: podsPerNode})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	fresh := &agent{binary: a.binary, dir: a.dir, log: log, lab: lab}
	if err := fresh.start(ctx); err != nil {
		return nil, err
	}
	defer fresh.proc.Kill()
	return dump(ctx, lab.Node())
}

// print writes the table and returns an error that lists what failed.
func (r *report) print() error {
	var failed []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			failed = append(failed, fmt.Errorf(format, args...))
		}
	}
	fmt.Printf("\n%-18s %9s %6s %6s %8s %7s %9s\n", "requests", "answered", "lost", "stale", "excused", "> 0.9s", "slowest")
	for _, k := range slices.Sorted(maps.Keys(r.t.kind)) {
		c := r.t.kind[k]
		fmt.Printf("%-18s %9d %6d %6d %8d %7d %9s\n", k, c.answered, c.lost, c.stale, c.excused, c.slow, c.worst.Round(time.Millisecond))
		check(c.lost == 0, "%d requests lost: %s", c.lost, k)
		check(c.stale == 0, "%d requests answered by who had left: %s", c.stale, k)
		check(c.answered > int(r.took.Seconds()), "only %d requests: %s", c.answered, k)
	}
	for _, b := range slices.Concat(r.t.bad[0], r.t.bad[1]) {
		fmt.Println("   ", b)
	}
	fmt.Printf("an endpoint that left got its last request %s later at the latest; the agent's threads waited %s for a processor\n",
		r.t.lag.Round(time.Millisecond), r.t.late.since(time.Time{}).Round(time.Millisecond))
	early, middle, late := window(r.samples, 20, 40), window(r.samples, 40, 60), window(r.samples, 80, 100)
	fmt.Printf("\n%-18s %9s %9s %9s\n", "memory", "early", "middle", "end")
	fmt.Printf("%-18s %9.1f %9.1f %9.1f\n", "resident, MiB", early.rss, middle.rss, late.rss)
	fmt.Printf("%-18s %9.1f %9.1f %9.1f\n", "heap in use, MiB", early.heap, middle.heap, late.heap)
	fmt.Printf("%-18s %9.1f %9.1f %9.1f\n", "objects, thousand", early.objects, middle.objects, late.objects)
	check(len(r.samples) > 10, "only %d samples of memory", len(r.samples))
	backlog := r.t.late.since(time.Time{}).Seconds() / r.took.Seconds() // changes that a starved agent has not handled yet are in its memory
	check(late.rss < early.rss*(1.15+backlog)+4, "resident memory grew from %.1f to %.1f MiB", early.rss, late.rss)
	check(late.heap < early.heap*(1.25+backlog)+4, "the heap grew from %.1f to %.1f MiB", early.heap, late.heap)

	rate := float64(r.w.changes) / r.took.Seconds()
	fmt.Printf("\n%d changes (%.0f/s) in %s: %.0f kernel operations, %.0f conflicts, %.0f rebuilds\n",
		r.w.changes, rate, r.took.Round(time.Second), r.writes, r.conflicts, r.rebuilds)
	for i, bound := range boundsOf() {
		fmt.Printf("%.3f %% of changes were in the kernel %s s after they were read\n", 100*r.within[i], bound)
	}
	fmt.Printf("the kernel at the end: %d elements, %d differences from scratch, %d unused shared chains\n", r.elements, len(r.differences), r.unused)
	for _, d := range r.differences[:min(len(r.differences), 10)] {
		fmt.Println("   ", d)
	}
	fmt.Printf("a restart writes %.0f objects\n", r.again)
	check(rate > changesPerSec*0.9, "only %.0f changes a second", rate)
	check(r.elements > services, "only %d elements: nothing was compared", r.elements)
	check(len(r.differences) == 0, "the kernel differs from scratch")
	check(r.again == 0, "a restart wrote %.0f objects", r.again)
	check(r.syncFailures == 0, "%.0f syncs failed", r.syncFailures)
	check(r.rebuilds == 0, "%.0f times all rules of a family were rebuilt", r.rebuilds) // sets grow in place, since Linux 6.5
	check(r.drift == 0, "%.0f objects were repaired that nobody had touched", r.drift)
	check(r.quarantined == 0, "%.0f Services were quarantined", r.quarantined)
	check(!r.logged("level=ERROR"), "the agent logged an error")
	return errors.Join(failed...)
}

func (r *report) logged(text string) bool {
	data, err := os.ReadFile(r.log)
	return err != nil || strings.Contains(string(data), text)
}
