package app

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/health"
	"github.com/fairlead/fairlead/internal/mailbox"
	"github.com/fairlead/fairlead/internal/metrics"
	"github.com/fairlead/fairlead/internal/model"
)

// watched is a follower whose clock and log a test holds, of an agent without sources,
// engine or kernel.
type watched struct {
	*follower
	now time.Time
	log bytes.Buffer
}

const syncPeriod = 30 * time.Second

func newWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	clock := func() time.Time { return w.now }
	families := []model.Family{model.IPv4, model.IPv6}
	log := logger{Logger: slog.New(slog.NewTextHandler(&w.log, nil)), level: new(slog.LevelVar)}
	a := &agent{cfg: &config.Config{}, log: log, mail: mailbox.New(), memory: newMemory(), reads: func() int { return 0 }, driver: namingDriver{}}
	a.caps.Families = families
	a.metrics = metrics.New(metrics.Params{Mode: "nftables", Families: families, Now: clock,
		Waiting: func() (int, int) { c := a.mail.Waiting(); return c.Services, c.Slices }})
	a.health = health.NewTracker(health.TrackerParams{Families: families, Timeout: 2 * syncPeriod, Now: clock,
		Waiting: func() time.Time { return a.mail.Waiting().Oldest }})
	a.service = health.NewServiceHealth(health.ServiceHealthParams{Families: families, Healthy: a.health.Healthy, Log: log.Logger})
	w.follower = newFollower(a)
	return w
}

// namingDriver names objects and does nothing.
type namingDriver struct{ dataplane.Driver }

func (namingDriver) KeyString(k dataplane.Key) string { return fmt.Sprintf("kind%d of a test", k.Kind) }

func (w *watched) after(d time.Duration) time.Time { w.now = w.now.Add(d); return w.now }

// change puts one change of a Service.
func (w *watched) change(name string) {
	w.a.put(model.Event{Received: w.now, Service: &model.Keyed[model.ServiceKey, model.Service]{Key: model.ServiceKey{Name: name}}})
}

// done reports the follower of a turn that ends now.
func (w *watched) done(t engine.Turn) {
	if t.Started.IsZero() {
		t.Started = w.now
	}
	t.Done = w.now
	w.turn(&t)
}

// TestAChangeBetweenStartAndDrain is committed with its turn, and does not count as
// waiting ever after (it made /livez 503 after a minute, and the kubelet restarts then).
func TestAChangeBetweenStartAndDrain(t *testing.T) {
	w := newWatched(t)
	w.change("first")
	started := w.now
	w.after(time.Millisecond)
	w.change("second")
	w.after(time.Millisecond)
	w.a.mail.Drain()
	w.done(engine.Turn{Started: started, Complete: true})
	w.after(time.Hour)
	if !w.a.health.Healthy() {
		t.Error("unhealthy with nothing waiting")
	}
	w.change("third")
	w.after(time.Millisecond)
	started = w.now
	w.a.mail.Drain()
	w.after(time.Millisecond)
	w.change("fourth") // after the drain: this one waits
	w.done(engine.Turn{Started: started, Complete: true})
	w.after(2*syncPeriod - time.Millisecond)
	if !w.a.health.Healthy() {
		t.Error("unhealthy too early")
	}
	w.after(time.Millisecond)
	if w.a.health.Healthy() {
		t.Error("a change that came after the drain does not count as waiting")
	}
}

// TestConflictHasGrace: the first conflict, or the first comparison that fails, says
// nothing yet; one that lasts does.
func TestConflictHasGrace(t *testing.T) {
	for name, turn := range map[string]engine.Turn{
		"a conflict":            {Complete: true, Err: fmt.Errorf("no quiet moment: %w", dataplane.ErrConflict)},
		"a failed full turn":    {Complete: true, Full: true, Err: errors.New("no memory")},
		"the first sync of all": {Complete: true, Full: true, Err: errors.New("no memory")},
	} {
		w := newWatched(t)
		if name != "the first sync of all" {
			w.done(engine.Turn{Complete: true})
		}
		w.done(turn)
		w.after(2*syncPeriod - 1)
		w.done(turn)
		if !w.a.health.Healthy() {
			t.Errorf("%s: unhealthy without grace", name)
		}
		w.after(1)
		if w.a.health.Healthy() {
			t.Errorf("%s: healthy for ever", name)
		}
		w.done(engine.Turn{Complete: true})
		if !w.a.health.Healthy() {
			t.Errorf("%s: unhealthy although it is over", name)
		}
	}
}

// TestNodeEligibility: a Node that leaves, or is deleted, gets no more traffic from
// load balancers; one that was never known is no reason, nor is one that stays.
func TestNodeEligibility(t *testing.T) {
	view := &model.NodeView{}
	here, leaving := engine.Turn{Complete: true, View: view, Node: &model.Node{}}, engine.Turn{Complete: true, View: view, Node: &model.Node{Leaving: true}}
	gone, other := engine.Turn{Complete: true, View: view}, engine.Turn{Complete: true}
	for name, tc := range map[string]struct {
		turns []engine.Turn
		want  bool
	}{
		"no Node yet":                   {[]engine.Turn{gone}, true},
		"a Node":                        {[]engine.Turn{here, other}, true},
		"leaves":                        {[]engine.Turn{here, leaving, other}, false},
		"leaves, in a turn that failed": {[]engine.Turn{here, {View: view, Node: &model.Node{Leaving: true}, Err: errors.New("x")}}, false},
		"stays after all":               {[]engine.Turn{here, leaving, here}, true},
		"deleted":                       {[]engine.Turn{here, gone, other}, false},
		"made again":                    {[]engine.Turn{here, gone, here}, true},
	} {
		w := newWatched(t)
		for _, turn := range tc.turns {
			w.done(turn)
		}
		if got := w.a.health.Eligible(); got != tc.want {
			t.Errorf("%s: eligible is %t", name, got)
		}
		if !w.a.health.Healthy() {
			t.Errorf("%s: that is no reason to restart the agent", name)
		}
	}
}

// TestInSyncIsSaidWhenItIs: once, and not before everything that should exist is known
// and in the kernel.
func TestInSyncIsSaidWhenItIs(t *testing.T) {
	w := newWatched(t)
	for _, turn := range []engine.Turn{{}, {Operations: 4}, {Complete: true, Err: errors.New("x")}} {
		w.done(turn)
		if strings.Contains(w.log.String(), "in sync") || w.a.health.Ready() {
			t.Errorf("in sync, or ready, after %+v", turn)
		}
	}
	for range 2 {
		w.done(engine.Turn{Complete: true})
	}
	if n := strings.Count(w.log.String(), "in sync"); n != 1 || !w.a.health.Ready() {
		t.Errorf("said %d times, ready %t", n, w.a.health.Ready())
	}
}
