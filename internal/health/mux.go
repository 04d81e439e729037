package health

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
)

// Mux configures what the metrics server (10249) serves.
type Mux struct {
	Mode         string       // /proxyMode
	Metrics      http.Handler // /metrics
	SLIs         http.Handler // /metrics/slis
	Configz      func() any   // /configz: what marshals to KubeProxyConfiguration
	OnPing       func()       // called for each /healthz; may be nil
	Profiling    bool         // /debug/pprof/ and /debug/flags/v
	SetVerbosity func(v int) error
	Pages        map[string]http.Handler // more, by pattern
}

// MetricsHandler serves kube-proxy's paths of the metrics server.
func MetricsHandler(m Mux) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", m.Metrics)
	mux.Handle("/metrics/slis", m.SLIs)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if m.OnPing != nil {
			m.OnPing()
		}
		text(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, m.Mode) })
	mux.HandleFunc("/configz", m.configz)
	for pattern, page := range m.Pages {
		mux.Handle(pattern, page)
	}
	if m.Profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
		mux.HandleFunc("/debug/flags/v", m.verbosity)
	}
	return mux
}

// configzGroup is the key under which the configuration stands.
const configzGroup = "kubeproxy.config.k8s.io"

func (m *Mux) configz(w http.ResponseWriter, _ *http.Request) {
	body, err := json.Marshal(map[string]any{configzGroup: m.Configz()})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body)
}

// verbosity answers PUT of a number, as Kubernetes' components do.
func (m *Mux) verbosity(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		text(w, http.StatusMethodNotAllowed, "unsupported http method")
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 32))
	if err != nil {
		text(w, http.StatusBadRequest, err.Error())
		return
	}
	v, err := strconv.ParseUint(strings.TrimSpace(string(body)), 10, 31)
	if err != nil {
		text(w, http.StatusBadRequest, "the verbosity must be a number, 0 or more")
		return
	}
	if err := m.SetVerbosity(int(v)); err != nil {
		text(w, http.StatusInternalServerError, err.Error())
		return
	}
	text(w, http.StatusOK, fmt.Sprintf("successfully set flag v to %d", v))
}

func text(w http.ResponseWriter, code int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, s)
}
