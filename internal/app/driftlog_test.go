package app

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/engine"
)

// Another program that writes ten times a second costs a line a minute, whose counts are exact; a repair after a quiet
// minute has its own line again.
func TestDriftIsSummedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		repaired := func() { w.done(engine.Turn{Complete: true, Drift: []engine.Drifted{{}, {}}}) }
		says := func(at, text string, n int) {
			t.Helper()
			synctest.Wait()
			if got := strings.Count(w.log.String(), text); got != n {
				t.Errorf("%s: %q is said %d times, want %d:\n%s", at, text, got, n, w.log.String())
			}
		}
		repaired()
		time.Sleep(50 * time.Millisecond) // virtual time (synctest): no repair falls on the end of a minute
		for range 1200 {                  // two minutes
			repaired()
			time.Sleep(100 * time.Millisecond) // virtual time (synctest)
		}
		says("in a storm", "repaired drift caused by another program", 1)
		says("in a storm", "times=600 objects=1200", 2)
		time.Sleep(5 * time.Minute) // virtual time (synctest)
		says("after it", "another program keeps changing the rules", 2)
		repaired()
		says("later", "repaired drift caused by another program", 2)
		time.Sleep(5 * time.Minute) // virtual time (synctest)
		says("later", "another program keeps changing the rules", 2)
	})
}
