package page

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/inspect"
)

// TestPage: what others wrote is shown and never obeyed.
func TestPage(t *testing.T) {
	now := time.Now()
	s := &inspect.Status{Node: "node-<a>", Now: now, Since: now, Troubled: 1, Problems: []string{"<script>alert(1)</script>\x1b]0;x\a\u009b"},
		Source: inspect.Source{Name: "API server", Connected: true}, Kernel: inspect.InKernel{Synced: now, Healthy: true},
		History: &inspect.History{Happened: []inspect.Happening{{At: now, What: "<b>repaired"}}, Minutes: []inspect.Minute{{Operations: 50, Longest: 3 * time.Millisecond}, {Operations: 100}}},
		Noted:   []inspect.Noted{{Reason: "none_ready", Services: 7, Some: []string{"shop/pay"}}}}
	var b strings.Builder
	err := New().Write(&b, Content{Status: s, Query: `"><script>`, Found: []string{"shop/web"}, More: 3, Explanation: &inspect.Explanation{Summary: "it is so"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"node-&lt;a&gt;", "Not well: 1 problem", `href="/status?q=shop%2fpay"`, "and 3 more", "it is so", "prefers-color-scheme: dark", `role="search"`,
		"&lt;b&gt;repaired", "The last 2 minutes", `\x1b]0;x\a\u009b`, `aria-label="Objects written: at most 100 in a minute"`, "Slowest sync: at most 3ms",
		`<rect x="1" y="30.0" width="8" height="30.0"/><rect x="11" y="0.0" width="8" height="60.0"/>`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in:\n%s", want, b.String())
		}
	}
	if strings.ContainsAny(b.String(), "\x1b\a\u009b") {
		t.Error("control characters are on the page")
	}
	if strings.Contains(b.String(), "<script") || strings.Contains(b.String(), "http-equiv") {
		t.Errorf("a script, or a refresh while somebody reads an answer:\n%s", b.String())
	}
}

func TestTextPages(t *testing.T) {
	var b strings.Builder
	at := time.Date(2026, 11, 22, 2, 11, 0, 0, time.UTC)
	Statusz(&b, Process{Version: "v1", Go: "go1.26", Started: at, Now: at.Add(90*time.Minute + 5*time.Second)})
	Flagz(&b, []string{"v=2", "manifests=/x"})
	for _, want := range []string{"kube-proxy statusz", "Started: Sun, 22 Nov 2026 02:11:00 UTC", "Up: 1 hr 30 min 05 sec", "Binary version: fairlead v1", "kube-proxy flagz", "manifests=/x\nv=2\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}
