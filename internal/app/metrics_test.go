package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/conntrack"
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/iptables"
	"github.com/fairlead/fairlead/internal/engine"
	kernel "github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/metrics"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
	"github.com/fairlead/fairlead/internal/traffic"
)

// constant are the rows that no event here moves: what is running, and what the kernel is
// asked for at each scrape; and what is said of the acceleration, which moves under a kernel
// with flowtables only. They must be there.
func constant() []string {
	return []string{"fairlead_build_info", "kubernetes_build_info", "kubernetes_feature_enabled", "fairlead_affinity_clients", "fairlead_affinity_full",
		"fairlead_offload_threshold_packets", "fairlead_offload_devices", "fairlead_offload_refused_total", "fairlead_offload_connections_total", "fairlead_offload_connections",
		"fairlead_offload_packets", "fairlead_offload_bytes", "fairlead_offload_left_packets_total"}
}

// TestEveryMetricIsFed builds an agent as a user's configuration does, has happen to it
// all that an agent can meet, and wants each name that it serves moved by that. Only the
// agent's own entrances are used here, so that a row which nothing in the agent feeds
// cannot move.
func TestEveryMetricIsFed(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables"} {
		t.Run(mode, func(t *testing.T) {
			a := realAgent(t, "--proxy-mode", mode, "--kubeconfig", unwilling(t), "--hostname-override", "node-a", "--feature-gates", "KubeProxyAcceleration=true", "--service-metrics=5",
				"--conntrack-max-per-core=0", "--oom-score-adj=0") // these two are not the namespace's own
			pages := []http.Handler{a.metrics.Handler(), a.metrics.SLIHandler()}
			before, moved := series(t, pages), map[string]bool{}
			look := func() (served map[string]string) {
				served = series(t, pages)
				for name, rows := range served {
					moved[name] = moved[name] || rows != before[name]
				}
				return served
			}
			live(t, a, look)
			served := look()
			for _, name := range append(metrics.Names(mode), "kubernetes_healthchecks_total") {
				if !moved[name] && (served[name] == "" || !slices.Contains(constant(), name)) {
					if mode != "nftables" && strings.HasPrefix(name, "rest_client_") {
						continue // client-go tells the first agent of a process only
					}
					t.Errorf("nothing moves %s:\n%s", name, served[name])
				}
			}
		})
	}
}

// realAgent is one that is built and not running.
func realAgent(t *testing.T, args ...string) *agent {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags := config.Register(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	cfg, err := flags.Load(config.Params{Modes: modes(), Hostname: os.Hostname})
	if err != nil {
		t.Fatal(err)
	}
	a, err := newAgent(t.Context(), cfg, newLogger(cfg.Logging), &launch{version: "v0.0.0-test"})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// unwilling is the kubeconfig of an API server that lets Services be watched, says
// nothing there, and refuses everything else.
func unwilling(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/services" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: %q}}]\n"+
		"users: [{name: x, user: {}}]\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n", s.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// series gives, for each name, all its rows.
func series(t *testing.T, pages []http.Handler) map[string]string {
	t.Helper()
	by := map[string]string{}
	for _, page := range pages {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		name := ""
		for line := range strings.Lines(w.Body.String()) {
			if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
				name, _, _ = strings.Cut(rest, " ")
				by[name] = ""
			} else if !strings.HasPrefix(line, "#") {
				by[name] += line
			}
		}
	}
	return by
}

// live is a hard life for an agent; look is called at its worst moments.
func live(t *testing.T, a *agent, look func() map[string]string) {
	t.Helper()
	if err := a.driver.Load(t.Context(), func(dataplane.Key, string) {}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	svc := model.ServiceKey{Namespace: "shop", Name: "web"}
	a.put(model.Event{Service: &model.Keyed[model.ServiceKey, model.Service]{Key: svc}})
	a.put(model.Event{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: model.SliceKey{Namespace: "shop", Name: "web-1"}}})
	turn := engine.Turn{
		Started: now, Done: now.Add(time.Millisecond), Full: true, Operations: 3, Reads: 1, Conflicts: 1, ServiceEvents: 1, SliceEvents: 1,
		Triggers: []engine.Trigger{{Changed: now.Add(-time.Second), Received: now.Add(-time.Second)}},
		Problems: []model.Problem{{Object: "Service shop/web", Reason: "is wrong"}},
		Drift:    []engine.Drifted{{Key: dataplane.Key{Kind: dataplane.KindRoot, Family: model.IPv4}, Gone: true}},
		Rebuilt:  []engine.Rebuilt{{Family: model.IPv4, Why: "a set is full"}},
		Decided: []engine.Decided{{Key: svc, Result: policy.Result{NoLocalInternal: true, NoLocalExternal: true, NoLocalFamilies: []model.Family{model.IPv4},
			Notes: []policy.Note{{Kind: policy.NoneHere, Port: "http", Family: model.IPv4, Text: "none is here"}}}}},
		Services: 1, Slices: 1, Endpoints: 1, Pending: 2, Held: 1,
	}
	for p := range turn.Phases {
		turn.Phases[p] = time.Millisecond
	}
	a.follow.turn(&turn)
	look()
	a.follow.turn(&engine.Turn{Started: now, Done: now.Add(time.Millisecond), Operations: 1})
	a.follow.turn(&engine.Turn{Started: now, Done: now, Err: errors.New("no memory")})
	a.onConntrackPass(conntrack.Pass{Looked: map[model.Family]time.Duration{model.IPv4: time.Millisecond, model.IPv6: time.Millisecond}, Deleted: map[model.Family]int{model.IPv4: 1, model.IPv6: 1}})
	liveOnLoopback(t, a, svc)
	liveConnections(a, svc)
	if a.cfg.Mode == iptables.Name {
		liveWithIPTables(a.metrics)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.run(ctx) }()
	for _, url := range []string{"http://127.0.0.1:10256/healthz", "http://127.0.0.1:10256/livez", "http://127.0.0.1:10249/healthz"} {
		eventually(t, url, func() error {
			resp, err := http.Get(url)
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		})
	}
	eventually(t, "a request to the API server", func() error {
		if a.status().Err == "" {
			return errors.New("not yet refused")
		}
		return nil
	})
	eventually(t, "what was heard of Services", func() error {
		if series(t, []http.Handler{a.metrics.Handler()})["fairlead_watch_staleness_seconds"] == "" {
			return errors.New("nothing")
		}
		return nil
	})
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the agent ended with %v", err)
	}
}

// liveOnLoopback has NodePorts on ::1 answered, refused, and not bound.
func liveOnLoopback(t *testing.T, a *agent, svc model.ServiceKey) {
	t.Helper()
	taken, err := net.Listen("tcp", "[::1]:30081")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	var ports []model.Frontend
	for _, port := range []uint16{30080, 30081} {
		ports = append(ports, model.Frontend{Kind: model.NodePort, Service: svc, Verdict: model.Forward,
			Key:      model.FrontendKey{Family: model.IPv6, Protocol: model.TCP, Port: port},
			Backends: []model.Backend{{Addr: netip.MustParseAddr("::1"), Port: 1}}})
	}
	view := &model.NodeView{ListenLocalhost: true}
	a.follow.turn(&engine.Turn{View: view, Decided: []engine.Decided{{Key: svc, Result: policy.Result{Frontends: ports}}}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.localhost.Run(ctx) }()
	defer func() { cancel(); <-ended }() // the agent runs it again afterwards
	eventually(t, "NodePort on ::1", func() error {
		c, err := net.Dial("tcp", "[::1]:30080")
		if err == nil {
			err = c.Close()
		}
		return err
	})
	eventually(t, "a rejected connection is counted, and a port that is taken", func() error {
		page := series(t, []http.Handler{a.metrics.Handler()})
		for _, name := range []string{"kubeproxy_nftables_localhost_nodeport_rejected_packets_total", "kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total"} {
			if rows, served := page[name]; a.cfg.Mode == "nftables" && (!served || rows == "") {
				return fmt.Errorf("no %s", name)
			}
		}
		return nil
	})
}

// liveConnections has a connection begin and end without an answer, and packets refused and dropped, and events lost.
func liveConnections(a *agent, svc model.ServiceKey) {
	to, endpoint := netip.MustParseAddrPort("10.96.0.1:80"), netip.MustParseAddrPort("10.1.0.1:8080")
	a.follow.turn(&engine.Turn{Decided: []engine.Decided{{Key: svc, Result: policy.Result{Frontends: []model.Frontend{{
		Service: svc, Port: "http", Kind: model.ClusterIP, Verdict: model.Forward, Key: model.FrontendKey{Family: model.IPv4, Protocol: model.TCP, Addr: to.Addr(), Port: to.Port()},
		Backends: []model.Backend{{Addr: endpoint.Addr(), Port: endpoint.Port()}}}}}}}})
	e := kernel.Event{Flow: kernel.Flow{Protocol: uint8(model.TCP), Orig: kernel.Tuple{Dst: to}, Reply: kernel.Tuple{Src: endpoint}}}
	a.traffic.happened(&e)
	e.Ended, e.Sent, e.Received = true, 100, 200
	a.traffic.happened(&e)
	a.traffic.count.Lost()
	packets := uint64(0)
	a.traffic.read = func(_ context.Context, emit func(refusal, uint64)) error {
		packets++
		emit(refusal{protocol: model.TCP, to: to}, packets)
		emit(refusal{port: traffic.ServicePort{Service: svc, Port: "http"}, dropped: true}, packets)
		return nil
	}
	a.traffic.rows()
}

// liveWithIPTables says what the driver says through its Observer; when it does is
// tested with the driver.
func liveWithIPTables(told iptables.Observer) {
	told.RestoreFailed(model.IPv4, true)
	told.IPTablesRules("nat", model.IPv4, 7, 3)
	told.IPTablesAudit(time.Millisecond, true)
	told.IPTablesContended(1)
	var packets atomic.Uint64 // two collectors ask at once
	count := func() (uint64, error) { return packets.Add(1), nil }
	told.IPTablesCounters(count, count)
}

// TestCommit: the build's commit is in fairlead_build_info.
func TestCommit(t *testing.T) {
	setting := func(k, v string) debug.BuildSetting { return debug.BuildSetting{Key: k, Value: v} }
	for want, info := range map[string]*debug.BuildInfo{
		"unknown":   {},
		"abc":       {Settings: []debug.BuildSetting{setting("vcs.revision", "abc"), setting("vcs.modified", "false")}},
		"abc-dirty": {Settings: []debug.BuildSetting{setting("vcs.modified", "true"), setting("vcs.revision", "abc")}},
	} {
		if got := commit(info, true); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
