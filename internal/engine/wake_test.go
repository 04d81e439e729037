package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/mailbox"
	"github.com/fairlead/fairlead/internal/model"
)

// countingMailbox counts the turns of the loop: each drains once.
type countingMailbox struct {
	*mailbox.Mailbox
	drained atomic.Int64
}

func (c *countingMailbox) Drain() []model.Event {
	c.drained.Add(1)
	return c.Mailbox.Drain()
}

// No failure makes the loop turn fast: ten minutes of each cost a few hundred turns.
func TestNoFailureMakesABusyLoop(t *testing.T) {
	fails := errors.New("it fails, says the test")
	cases := map[string]struct {
		spoil  func(d *memDriver)
		events []model.Event
		most   int64
	}{
		"first load fails":    {func(d *memDriver) { d.failLoad = func() error { return fails } }, []model.Event{svcEvent(1, 80), synced}, 100},
		"load without synced": {func(d *memDriver) { d.failLoad = func() error { return fails } }, []model.Event{svcEvent(1, 80)}, 100},
		"load is interrupted": {func(d *memDriver) { d.failLoad = func() error { return dataplane.ErrInterrupted } }, []model.Event{svcEvent(1, 80), synced}, 100},
		"apply fails":         {func(d *memDriver) { d.fail = func(dataplane.Batch) error { return fails } }, []model.Event{svcEvent(1, 80), synced}, 100},
		"apply cannot":        {func(d *memDriver) { d.fail = func(dataplane.Batch) error { return dataplane.ErrUnsupported } }, []model.Event{svcEvent(1, 80), synced}, 100},
		"apply always moves":  {func(d *memDriver) { d.fail = func(dataplane.Batch) error { return dataplane.ErrConflict } }, []model.Event{svcEvent(1, 80), synced}, 100},
		"nothing fits": {func(d *memDriver) {
			d.fail = func(dataplane.Batch) error { return &dataplane.RebuildError{Families: []model.Family{model.IPv4}} }
		}, []model.Event{svcEvent(1, 80), synced}, 100},
		"watch fails":           {func(d *memDriver) { d.failWatch = fails }, []model.Event{svcEvent(1, 80), synced}, 200},
		"slices are forbidden":  {func(*memDriver) {}, []model.Event{svcEvent(1, 80), svcEvent(2, 80)}, 10},
		"a folder is in part":   {func(*memDriver) {}, []model.Event{svcEvent(1, 80), {Listed: "file"}}, 10},
		"a Service is refused":  {func(d *memDriver) { d.fail = func(b dataplane.Batch) error { return refuseVIP(b, 1) } }, []model.Event{svcEvent(1, 80), synced}, 50},
		"nothing at all":        {func(*memDriver) {}, nil, 15},
		"everything is as good": {func(*memDriver) {}, []model.Event{svcEvent(1, 80), synced}, 10},
	}
	for name, c := range cases {
		for _, pause := range []time.Duration{0, time.Second} {
			t.Run(name+" "+pause.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					drv, mail := newMemDriver(), &countingMailbox{Mailbox: mailbox.New()}
					c.spoil(drv)
					b := newBench(drv, func(p *Params) { p.Mailbox, p.MinSync, p.Audit = mail, pause, 2*time.Minute })
					run(t, b, func() {
						for _, ev := range c.events {
							mail.Put(ev)
						}
						time.Sleep(10 * time.Minute) // virtual time (synctest)
						synctest.Wait()
						if n := mail.drained.Load(); n > c.most {
							t.Errorf("%d turns in ten minutes", n)
						}
					})
				})
			})
		}
	}
}

func refuseVIP(b dataplane.Batch, i int) error {
	for _, op := range b.Ops {
		if op.Key == vip(i) {
			return &dataplane.InvalidError{Keys: []dataplane.Key{op.Key}, Err: errors.New("EINVAL, says the test")}
		}
	}
	return nil
}

// Only Probe's errors end the agent, and a table that another program owns at the first read.
func TestWhichErrorsEndTheEngine(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		load  bool
		later bool
		ends  bool
	}{
		"no right to write":      {dataplane.ErrUnsupported, false, false, false},
		"no right to read":       {dataplane.ErrUnsupported, true, false, false},
		"somebody else's":        {dataplane.ErrNotOurs, true, false, true},
		"somebody else's, later": {dataplane.ErrNotOurs, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(newMemDriver(), nil)
				fail := func() {
					b.drv.mu.Lock()
					defer b.drv.mu.Unlock()
					if c.load {
						b.drv.failLoad = func() error { return c.err }
					} else {
						b.drv.fail = func(dataplane.Batch) error { return c.err }
					}
				}
				if !c.later {
					fail()
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- b.Run(ctx) }()
				b.put(svcEvent(1, 80), synced)
				synctest.Wait()
				fail()
				b.drv.foreign(func(map[dataplane.Key]string) {})
				b.put(svcEvent(2, 80))
				time.Sleep(time.Hour) // virtual time (synctest)
				synctest.Wait()
				ended := len(done) > 0
				stop()
				if err := <-done; ended != c.ends || c.ends != errors.Is(err, c.err) {
					t.Errorf("the engine ended: %t, %v", ended, err)
				}
			})
		})
	}
}
