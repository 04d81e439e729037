package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// BenchmarkRefusals reports how long a thousand refused Services hold up another one,
// among 50 000: one turn, on a kernel that costs nothing.
func BenchmarkRefusals(b *testing.B) {
	const services, refused = 50_000, 1_000
	drv := newMemDriver()
	turns := make(chan Turn, 100)
	e := newBench(drv, func(p *Params) { p.OnTurn = func(t *Turn) { turns <- *t } })
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	defer func() { stop(); <-done }()
	for i := range services {
		e.put(svcEvent(i, 80), sliceEvent(i, i, i+1))
	}
	e.put(synced)
	go func() { done <- e.Run(ctx) }()
	<-turns
	drv.mu.Lock()
	drv.fail = func(batch dataplane.Batch) error {
		err := &dataplane.InvalidError{Err: errors.New("EINVAL, says the test")}
		for _, op := range batch.Ops {
			if strings.HasSuffix(op.Key.ID, ":666/TCP") {
				err.Keys = append(err.Keys, op.Key)
			}
		}
		if len(err.Keys) > 0 {
			return err
		}
		return nil
	}
	drv.mu.Unlock()
	for b.Loop() {
		for i := range refused {
			e.put(svcEvent(i, 666))
		}
		e.put(svcEvent(services, 80))
		for t := range turns {
			if t.Held == refused && t.Err == nil {
				b.ReportMetric(float64(t.Done.Sub(t.Started).Milliseconds()), "ms/turn")
				break
			}
		}
		b.StopTimer()
		for i := range refused {
			e.put(svcEvent(i, 80))
		}
		e.put(goneEvent(services))
		for t := range turns {
			if t.Held == 0 && t.Err == nil {
				break
			}
		}
		b.StartTimer()
	}
}
