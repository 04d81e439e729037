package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// TestLookRepairsNothing: it reports the drift as often as it is called, also after a change of another Service. An audit
// repairs it.
func TestLookRepairsNothing(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		repaired := b.slowly()
		for range 2 {
			a, err := b.Look(t.Context())
			if err != nil || a.Different != 1 || a.Missing+a.Foreign != 0 || len(a.Names) != 1 || !strings.HasPrefix(a.Names[0], "different: ") {
				t.Fatalf("%+v %v", a, err)
			}
			if time.Sleep(time.Minute); repaired() { // virtual time (synctest)
				t.Fatal("a look has repaired it")
			}
		}
		b.put(svcEvent(2, 80))
		if time.Sleep(time.Minute); repaired() { // virtual time (synctest)
			t.Fatal("a change has repaired it: --repair=false would not leave it")
		}
		if a, err := b.Audit(t.Context()); err != nil || a.Different != 1 {
			t.Fatalf("%+v %v", a, err)
		}
		if time.Sleep(time.Minute); !repaired() { // virtual time (synctest)
			t.Fatal("an audit did not repair it")
		}
		if a, err := b.Look(t.Context()); err != nil || a.Different+a.Missing+a.Foreign != 0 || a.Objects == 0 {
			t.Errorf("repaired, and yet %+v %v", a, err)
		}
	})
}

// TestLookBeforeAnythingIsRead: it waits, and says in the end why there is no answer.
func TestLookBeforeAnythingIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		run(t, b, func() {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if _, err := b.Look(ctx); !errors.Is(err, errNothingRead) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
		})
	})
}

// TestLookAtWhatMustBeMadeAnew: a family that cannot be read object by object differs.
func TestLookAtWhatMustBeMadeAnew(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		b.drv.mu.Lock()
		b.drv.failLoad = func() error {
			return &dataplane.RebuildError{Families: []model.Family{model.IPv4}, Why: "another layout"}
		}
		b.drv.mu.Unlock()
		if a, err := b.Look(t.Context()); err != nil || a.Different != 1 || !strings.Contains(a.Names[0], "another layout") {
			t.Errorf("%+v %v", a, err)
		}
	})
}
