package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestUndecided: a change that comes in the pause after a write is distinguished from one that is in the kernel.
func TestUndecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), func(p *Params) { p.MinSync = time.Minute })
		run(t, b, func() {
			k := svcEvent(1, 80).Service.Key
			undecided := func() (is bool) {
				if err := b.Inspect(t.Context(), func(v View) { is = v.Undecided(k) }); err != nil {
					t.Fatal(err)
				}
				return is
			}
			b.put(svcEvent(1, 80), sliceEvent(1, 1), synced)
			synctest.Wait()
			if undecided() {
				t.Error("it is in the kernel")
			}
			b.put(sliceEvent(1, 1, 2))
			synctest.Wait()
			if !undecided() {
				t.Error("the change waits, and that goes unsaid")
			}
			time.Sleep(time.Minute) // virtual time (synctest)
			synctest.Wait()
			if undecided() {
				t.Error("the pause is over")
			}
		})
	})
}
