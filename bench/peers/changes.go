package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	idleTime   = 3 * time.Second
	afterFlip  = 1500 * time.Millisecond // part of a change's CPU window: the subject's work after packets use the new state
	churnPause = 100 * time.Millisecond
)

// singles measures one change at a time on an idle subject.
func (t *trial) singles(ctx context.Context) error {
	count := t.c.options.singles
	if t.brief() {
		count = min(count, 2)
	}
	if count == 0 {
		return nil
	}
	m := t.meter()
	if !pause(ctx, idleTime) {
		return ctx.Err()
	}
	idle, _ := m.read()
	before := t.own(ctx, operations)
	var cpu, latency, write []float64
	for range count {
		m := t.meter()
		total, api, err := t.canary.flip(ctx)
		if err != nil {
			return err
		}
		if !pause(ctx, afterFlip) {
			return ctx.Err()
		}
		used, _ := m.read()
		cpu, latency, write = append(cpu, 1000*used.Total), append(latency, millis(total)), append(write, millis(api))
	}
	r := singleRecord{CPUms: newSpread(cpu), LatencyMs: newSpread(latency), WriteMs: newSpread(write), IdleMsPerS: 1000 * idle.Total / idleTime.Seconds()}
	if after := t.own(ctx, operations); before != nil && after != nil {
		each := (*after - *before) / float64(count)
		r.ObjectsEach = &each
	}
	return t.add(record{Single: &r})
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// churn makes 10 changes a second, each of which removes or restores one endpoint of a random Service. It also moves
// the canary now and then (in addition to the 10) to measure how long a change takes to reach the packets.
func (t *trial) churn(ctx context.Context) error {
	if t.c.options.churn == 0 {
		return nil
	}
	before, err := scrape(ctx, t.node.host)
	if err != nil {
		return err
	}
	t.subject.group.resetPeak()
	r := churnRecord{}
	m, start := t.meter(), time.Now()
	flips, stopFlips := context.WithCancel(ctx)
	defer stopFlips()
	var latency []float64
	var g errgroup.Group
	g.Go(func() (err error) { latency, err = t.flips(flips, ctx); return err })
	removed, err := t.changes(ctx, &r)
	r.Seconds = time.Since(start).Seconds()
	r.CPU, r.OtherBusy = m.read()
	stopFlips()
	if err2 := g.Wait(); err2 != nil || err != nil {
		return fmt.Errorf("churn: %w; canary: %w", err, err2)
	}
	after, err := scrape(ctx, t.node.host)
	if err != nil {
		return err
	}
	r.LatencyMs, r.PeakMiB = newSpread(latency), t.subject.group.memoryPeakMiB()
	r.Syncs, _ = after.observed(syncTime, before)
	r.ProgrammedCount, r.ProgrammedMean = after.observed(programming, before)
	if err := t.add(record{Churn: &r}); err != nil {
		return err
	}
	return t.giveBack(ctx, removed)
}

func (t *trial) changes(ctx context.Context, r *churnRecord) (removed map[int]bool, err error) {
	removed = map[int]bool{}
	random := rand.New(rand.NewPCG(1, uint64(t.n))) // the same changes for each subject
	start := time.Now()
	for i := 0; ; i++ {
		due := start.Add(time.Duration(i) * churnPause)
		if due.Sub(start) >= t.c.options.churn {
			return removed, nil
		}
		if late := time.Since(due); late > churnPause {
			r.Late++
		}
		if !pause(ctx, max(0, time.Until(due))) {
			return removed, ctx.Err()
		}
		k := random.IntN(t.n)
		if err := t.setCount(ctx, k, removed[k]); err != nil {
			return removed, err
		}
		removed[k] = !removed[k]
		r.Changes++
	}
}

// setCount sets the endpoints of a Service to all of them or to all but one. If a Service has only one endpoint, the
// latter is none.
func (t *trial) setCount(ctx context.Context, service int, full bool) error {
	e := t.c.endpoints
	count := e
	if !full {
		count--
	}
	return t.c.setEndpoints(ctx, serviceName(service), acceptPort, endpoints(service, e, count))
}

// flips moves the canary until stop ends; a move in progress may finish under ctx.
func (t *trial) flips(stop, ctx context.Context) (latency []float64, err error) {
	for pause(stop, 300*time.Millisecond+rand.N(900*time.Millisecond)) {
		total, _, err := t.canary.flip(ctx)
		if err != nil {
			return latency, err
		}
		latency = append(latency, millis(total))
	}
	return latency, nil
}

func (t *trial) giveBack(ctx context.Context, removed map[int]bool) error {
	for k, gone := range removed {
		if !gone {
			continue
		}
		if err := t.setCount(ctx, k, true); err != nil {
			return err
		}
	}
	// The subject must be idle before the next phase: its last change is the last one it gets.
	if _, _, err := t.canary.flip(ctx); err != nil {
		return err
	}
	return settle(ctx)
}
