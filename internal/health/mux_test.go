package health

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func testMux() (Mux, *int, *int) {
	pings, verbosity := new(int), new(int)
	word := func(s string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(s)) })
	}
	return Mux{
		Mode: "nftables", Metrics: word("m"), SLIs: word("s"), Configz: func() any { return map[string]int{"a": 1} },
		OnPing: func() { *pings++ }, Profiling: true,
		SetVerbosity: func(v int) error {
			if v > 9 {
				return errors.New("too much")
			}
			*verbosity = v
			return nil
		},
	}, pings, verbosity
}

func TestMetricsMux(t *testing.T) {
	m, pings, _ := testMux()
	h := MetricsHandler(m)
	for path, want := range map[string]struct{ body, contentType string }{
		"/metrics":      {"m", ""},
		"/metrics/slis": {"s", ""},
		"/healthz":      {"ok", "text/plain; charset=utf-8"},
		"/proxyMode":    {"nftables", "text/plain; charset=utf-8"},
		"/configz":      {`{"kubeproxy.config.k8s.io":{"a":1}}`, "application/json"},
	} {
		w := get(t, h, path)
		if w.Code != http.StatusOK || w.Body.String() != want.body {
			t.Errorf("%s: %d %q, want %q", path, w.Code, w.Body, want.body)
		}
		if want.contentType != "" && (w.Header().Get("Content-Type") != want.contentType || w.Header().Get("X-Content-Type-Options") != "nosniff") {
			t.Errorf("%s: headers %v", path, w.Header())
		}
	}
	if *pings != 1 {
		t.Errorf("%d pings counted", *pings)
	}
	if w := get(t, h, "/nothing"); w.Code != http.StatusNotFound {
		t.Errorf("/nothing: %d", w.Code)
	}
}

func TestProfilingOnlyIfAsked(t *testing.T) {
	m, _, _ := testMux()
	if w := get(t, MetricsHandler(m), "/debug/pprof/goroutine?debug=1"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "goroutine profile") {
		t.Errorf("on: %d", w.Code)
	}
	m.Profiling = false
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/profile", "/debug/flags/v"} {
		if w := get(t, MetricsHandler(m), path); w.Code != http.StatusNotFound {
			t.Errorf("off: %s gives %d", path, w.Code)
		}
	}
}

func TestVerbosity(t *testing.T) {
	m, _, verbosity := testMux()
	h := MetricsHandler(m)
	for _, tc := range []struct {
		method, body string
		code, want   int
	}{
		{http.MethodPut, "4\n", http.StatusOK, 4},
		{http.MethodGet, "5", http.StatusMethodNotAllowed, 4},
		{http.MethodPut, "-1", http.StatusBadRequest, 4},
		{http.MethodPut, "lots", http.StatusBadRequest, 4},
		{http.MethodPut, strings.Repeat("1", 100), http.StatusBadRequest, 4},
		{http.MethodPut, "10", http.StatusInternalServerError, 4},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(tc.method, "/debug/flags/v", strings.NewReader(tc.body)))
		if w.Code != tc.code || *verbosity != tc.want {
			t.Errorf("%s %q: %d, verbosity %d; want %d, %d", tc.method, tc.body, w.Code, *verbosity, tc.code, tc.want)
		}
	}
}
