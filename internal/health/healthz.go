package health

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// Counter counts answers by HTTP status.
type Counter interface {
	Healthz(code int)
	Livez(code int)
}

// answer is the JSON of kube-proxy's /healthz and /livez, field by field: load
// balancer controllers and probes of clusters read it.
type answer struct {
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"` // not in /livez
	Healthy      bool                    `json:"healthy"`
	Status       map[string]familyAnswer `json:"status,omitempty"` // by family, once it has been written
}

type familyAnswer struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// HealthHandler serves /healthz (should load balancers send traffic here?), /livez
// (should this process be restarted?) and /readyz (does this node serve Services? may
// a rollout go on to the next one?). The Node's state plays a part in /healthz only.
func HealthHandler(t *Tracker, c Counter) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		s := t.snapshot()
		c.Healthz(reply(w, s.answer(t.p.Families, true), s.healthy && s.eligible))
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		s := t.snapshot()
		c.Livez(reply(w, s.answer(t.p.Families, false), s.healthy))
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch s := t.snapshot(); {
		case s.ready:
			text(w, http.StatusOK, "ok")
		case s.updated.IsZero():
			text(w, http.StatusServiceUnavailable, "not ready: no complete sync yet; see the agent's log for what is missing")
		case s.unknown:
			text(w, http.StatusServiceUnavailable, "not ready: the cluster has no Node with this node's name; set --hostname-override to the name of this machine's Node")
		default:
			text(w, http.StatusServiceUnavailable, "not ready: pending changes are not written to the kernel in time; see the agent's log for the cause")
		}
	})
	return mux
}

func (s snapshot) answer(families []model.Family, withNode bool) answer {
	a := answer{LastUpdated: s.updated, CurrentTime: s.now, Healthy: s.healthy}
	if !s.updated.IsZero() {
		a.Status = map[string]familyAnswer{}
		for _, f := range families { // one transaction holds both: what holds for one holds for the other
			a.Status[f.String()] = familyAnswer{LastUpdated: s.updated, Healthy: s.healthy}
		}
	}
	if withNode {
		a.NodeEligible = &s.eligible
	}
	return a
}

// reply writes the answer and returns its status. If the state is healthy, lastUpdated
// is now, as in kube-proxy, where it once was the time when the loop last ran.
func reply(w http.ResponseWriter, a answer, ok bool) int {
	code := http.StatusServiceUnavailable
	if ok {
		code = http.StatusOK
		a.LastUpdated = a.CurrentTime
	}
	writeJSON(w, code, a)
	return code
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // our own types: a programmer's error
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
