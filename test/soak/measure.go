package main

import (
	"context"
	"time"
)

// sample is the agent's memory at one time, in MiB.
type sample struct{ rss, heap, objects float64 }

// measure samples once a second until ctx ends.
func measure(ctx context.Context, a *agent) (out []sample, err error) {
	for tick := time.Tick(time.Second); ; {
		select {
		case <-ctx.Done():
			return out, nil
		case <-tick:
		}
		rss, err := a.rss()
		if err != nil {
			return out, err
		}
		heap, err := a.metric(ctx, "go_memstats_heap_inuse_bytes")
		if err != nil {
			continue // the machine is busy: the next sample is enough
		}
		objects, err := a.metric(ctx, "go_memstats_heap_objects")
		if err == nil {
			out = append(out, sample{rss, heap / (1 << 20), objects / 1000})
		}
	}
}

// window returns the mean over a part of the samples, given in hundredths.
func window(all []sample, from, to int) (m sample) {
	part := all[len(all)*from/100 : len(all)*to/100]
	for _, s := range part {
		m.rss, m.heap, m.objects = m.rss+s.rss, m.heap+s.heap, m.objects+s.objects
	}
	n := float64(max(len(part), 1))
	return sample{m.rss / n, m.heap / n, m.objects / n}
}
