package health

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/internal/model"
)

var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const timeout = time.Minute

// clock is a Tracker with a clock to turn, and a change that waits, or none.
type clock struct {
	*Tracker
	now, waiting time.Time
}

func newClock() *clock {
	c := &clock{now: epoch}
	c.Tracker = NewTracker(TrackerParams{
		Families: []model.Family{model.IPv4, model.IPv6}, Timeout: timeout,
		Waiting: func() time.Time { return c.waiting }, Now: func() time.Time { return c.now },
	})
	return c
}

func (c *clock) after(d time.Duration) time.Time { c.now = c.now.Add(d); return c.now }

// queued: a change comes in; the oldest that is not in the kernel counts.
func (c *clock) queued() {
	if c.waiting.IsZero() {
		c.waiting = c.now
	}
}

// synced: all that came is in the kernel.
func (c *clock) synced() { c.waiting = time.Time{}; c.Started(c.now); c.Synced(c.now) }

func TestTracker(t *testing.T) {
	for name, tc := range map[string]struct {
		do             func(*clock)
		healthy, ready bool
	}{
		"at start":                           {func(*clock) {}, true, false},
		"long before the API server answers": {func(c *clock) { c.queued(); c.after(time.Hour) }, true, false},
		"first sync is late":                 {func(c *clock) { c.queued(); c.Started(c.after(time.Hour)); c.after(timeout) }, false, false},
		"first sync still has time":          {func(c *clock) { c.queued(); c.Started(c.after(time.Hour)); c.after(timeout - 1) }, true, false},
		"started twice":                      {func(c *clock) { c.queued(); c.Started(c.now); c.Started(c.after(timeout)) }, false, false},
		"nothing waits":                      {func(c *clock) { c.synced(); c.after(time.Hour) }, true, true},
		"waits, in time":                     {func(c *clock) { c.synced(); c.queued(); c.after(timeout - 1) }, true, true},
		"waits too long":                     {func(c *clock) { c.synced(); c.queued(); c.after(timeout) }, false, false},
		"the oldest counts":                  {func(c *clock) { c.synced(); c.queued(); c.after(timeout - 1); c.queued(); c.after(1) }, false, false},
		"synced again":                       {func(c *clock) { c.synced(); c.queued(); c.after(time.Hour); c.synced(); c.after(time.Hour) }, true, true},
		"one conflict":                       {func(c *clock) { c.synced(); c.AuditFailed(c.now); c.after(timeout - 1) }, true, true},
		"audits fail for too long":           {func(c *clock) { c.synced(); c.AuditFailed(c.now); c.AuditFailed(c.after(timeout)) }, false, false},
		"audit good again":                   {func(c *clock) { c.synced(); c.AuditFailed(c.now); c.after(timeout); c.synced() }, true, true},
		"the first sync fails for too long":  {func(c *clock) { c.Started(c.now); c.AuditFailed(c.now); c.after(timeout) }, false, false},
		"no Node has our name":               {func(c *clock) { c.synced(); c.NodeUnknown(true) }, true, false},
		"the Node of our name comes":         {func(c *clock) { c.synced(); c.NodeUnknown(true); c.NodeUnknown(false) }, true, true},
		"node leaves":                        {func(c *clock) { c.synced(); c.NodeEligible(false) }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			tc.do(c)
			if got := c.Healthy(); got != tc.healthy {
				t.Errorf("healthy: %t, want %t", got, tc.healthy)
			}
			want := http.StatusServiceUnavailable
			if tc.ready {
				want = http.StatusOK
			}
			if w := get(t, HealthHandler(c.Tracker, newCounts()), "/readyz"); w.Code != want {
				t.Errorf("/readyz: %d, want %d: %s", w.Code, want, w.Body)
			}
		})
	}
}

type counts struct{ healthz, livez map[int]int }

func newCounts() *counts           { return &counts{map[int]int{}, map[int]int{}} }
func (c *counts) Healthz(code int) { c.healthz[code]++ }
func (c *counts) Livez(code int)   { c.livez[code]++ }

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestHealthAnswers(t *testing.T) {
	const early, synced, late = "2026-11-21T12:00:00Z", "2026-11-21T12:00:01Z", "2026-11-21T12:02:01Z"
	run := func(c *clock) { c.Started(c.now); c.queued(); c.after(time.Second); c.synced() }
	status := func(updated, healthy string) string {
		f := `{"lastUpdated":"` + updated + `","healthy":` + healthy + `}`
		return `{"IPv4":` + f + `,"IPv6":` + f + `}`
	}
	for name, tc := range map[string]struct {
		do             func(*clock)
		healthz, livez string
		codes          [2]int
	}{
		"starting": {
			func(*clock) {},
			`{"lastUpdated":"` + early + `","currentTime":"` + early + `","nodeEligible":true,"healthy":true}`,
			`{"lastUpdated":"` + early + `","currentTime":"` + early + `","healthy":true}`,
			[2]int{200, 200},
		},
		"well": {
			func(c *clock) { run(c); c.after(2 * time.Minute) },
			`{"lastUpdated":"` + late + `","currentTime":"` + late + `","nodeEligible":true,"healthy":true,"status":` + status(synced, "true") + `}`,
			`{"lastUpdated":"` + late + `","currentTime":"` + late + `","healthy":true,"status":` + status(synced, "true") + `}`,
			[2]int{200, 200},
		},
		"late": {
			func(c *clock) { run(c); c.queued(); c.after(2 * time.Minute) },
			`{"lastUpdated":"` + synced + `","currentTime":"` + late + `","nodeEligible":true,"healthy":false,"status":` + status(synced, "false") + `}`,
			`{"lastUpdated":"` + synced + `","currentTime":"` + late + `","healthy":false,"status":` + status(synced, "false") + `}`,
			[2]int{503, 503},
		},
		"node leaves": {
			func(c *clock) { run(c); c.NodeEligible(false); c.after(2 * time.Minute) },
			`{"lastUpdated":"` + synced + `","currentTime":"` + late + `","nodeEligible":false,"healthy":true,"status":` + status(synced, "true") + `}`,
			`{"lastUpdated":"` + late + `","currentTime":"` + late + `","healthy":true,"status":` + status(synced, "true") + `}`,
			[2]int{503, 200},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, n := newClock(), newCounts()
			h := HealthHandler(c.Tracker, n)
			tc.do(c)
			for i, path := range []string{"/healthz", "/livez"} {
				w := get(t, h, path)
				if d := cmp.Diff([2]string{tc.healthz, tc.livez}[i], w.Body.String()); d != "" {
					t.Errorf("%s -want +got:\n%s", path, d)
				}
				if w.Code != tc.codes[i] {
					t.Errorf("%s: status %d, want %d", path, w.Code, tc.codes[i])
				}
				if w.Header().Get("Content-Type") != "application/json" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
					t.Errorf("%s: headers %v", path, w.Header())
				}
			}
			if n.healthz[tc.codes[0]] != 1 || n.livez[tc.codes[1]] != 1 {
				t.Errorf("counted %+v", n)
			}
		})
	}
	if w := get(t, HealthHandler(newClock().Tracker, newCounts()), "/other"); w.Code != http.StatusNotFound {
		t.Errorf("/other: %d", w.Code)
	}
}

func TestAnswerIsKubeProxysJSON(t *testing.T) {
	c := newClock()
	c.synced()
	var got map[string]any
	if err := json.Unmarshal(get(t, HealthHandler(c.Tracker, newCounts()), "/healthz").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"lastUpdated", "currentTime", "nodeEligible", "healthy", "status"} {
		if _, ok := got[k]; !ok {
			t.Errorf("no %s", k)
		}
	}
	if len(got) != 5 {
		t.Errorf("more than that: %v", got)
	}
}
