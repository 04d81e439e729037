package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// slowBench has an engine whose writes take 20 ms and ask for a pause of 320 ms.
func slowBench(tune func(*Params)) *bench {
	drv := newMemDriver()
	drv.applyTakes = 20 * time.Millisecond
	return newBench(drv, func(p *Params) {
		p.Pace = 16
		if tune != nil {
			tune(p)
		}
	})
}

// wrote wants so many transactions 30 ms after some events.
func (b *bench) wrote(t *testing.T, want int, what string, events ...model.Event) {
	t.Helper()
	b.put(events...)
	time.Sleep(30 * time.Millisecond) // virtual time (synctest)
	synctest.Wait()
	if n := b.drv.count().applies; n != want {
		t.Errorf("%s: %d transactions, want %d", what, n, want)
	}
}

// TestWhatTakesAnEndpointAwayDoesNotWait: packets to it are lost until that is in, so
// the pause behind another write is not for it.
func TestWhatTakesAnEndpointAwayDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := slowBench(nil)
		run(t, b, func() {
			b.wrote(t, 1, "start", svcEvent(1, 80), sliceEvent(1, 1, 2, 3), svcEvent(2, 80), sliceEvent(2, 1, 2), svcEvent(3, 80), sliceEvent(3, 1), synced)
			b.wrote(t, 1, "an endpoint comes", sliceEvent(2, 1, 2, 3))
			b.wrote(t, 2, "an endpoint goes", sliceEvent(1, 1, 2))
			stops := sliceEvent(1, 1, 2)
			stops.Slice.Value.Endpoints[1].Ready = false
			b.wrote(t, 2, "an endpoint serves those that it has", stops)
			ending := sliceEvent(1, 1, 2)
			ending.Slice.Value.Endpoints[1].Ready, ending.Slice.Value.Endpoints[1].Serving = false, false
			b.wrote(t, 3, "an endpoint serves no more", ending)
			gone := sliceEvent(3)
			gone.Slice.Value = nil
			b.wrote(t, 3, "an endpoint may have moved", gone)
			time.Sleep(departPause) // virtual time (synctest)
			synctest.Wait()
			if n := b.drv.count().applies; n != 4 {
				t.Errorf("an endpoint that may have moved has not come back: %d transactions, want 4", n)
			}
			b.wrote(t, 4, "an endpoint comes", sliceEvent(2, 1, 2, 3, 4))
		})
	})
}

// TestEndpointsThatGoAllTheTime: the pauses are made up for, so over time no more is
// written than without haste.
func TestEndpointsThatGoAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := slowBench(nil)
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 1, 2), synced)
			for i := range 250 { // ten seconds
				b.put(sliceEvent(1, i+2, i+3))
				time.Sleep(40 * time.Millisecond) // virtual time (synctest)
			}
			if n := b.drv.count().applies; n < 30 || n > 36 { // 10 s of 340 ms each, and a second ahead
				t.Errorf("%d transactions in ten seconds", n)
			}
		})
	})
}

// TestHasteOutlivesAFailure: a write that failed does not make what takes an endpoint away wait out a pause.
func TestHasteOutlivesAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := slowBench(nil)
		run(t, b, func() {
			b.wrote(t, 1, "start", svcEvent(1, 80), sliceEvent(1, 1, 2), svcEvent(2, 80), synced)
			time.Sleep(10 * time.Second) // virtual time (synctest)
			b.wrote(t, 2, "an endpoint comes", sliceEvent(2, 1))
			b.drv.refuse(nil)
			b.drv.mu.Lock()
			b.drv.fail = func(dataplane.Batch) error { b.drv.fail = nil; return errors.New("no memory, says the test") }
			b.drv.mu.Unlock()
			b.wrote(t, 3, "an endpoint goes, in vain", sliceEvent(1, 1))
			time.Sleep(120 * time.Millisecond) // virtual time (synctest): the first retry comes within 100 ms, the pause lasts for 320 ms
			b.wrote(t, 4, "the retry")
			if b.last().Err != nil {
				t.Error(b.last().Err)
			}
		})
	})
}

// TestMinSyncGoesBeforeHaste: who asks for a pause gets it.
func TestMinSyncGoesBeforeHaste(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := slowBench(func(p *Params) { p.MinSync = 200 * time.Millisecond })
		run(t, b, func() {
			b.wrote(t, 1, "start", svcEvent(1, 80), sliceEvent(1, 1, 2), synced)
			b.wrote(t, 1, "within the least time", sliceEvent(1, 1))
			time.Sleep(200 * time.Millisecond) // virtual time (synctest)
			b.wrote(t, 2, "after the least time")
		})
	})
}
