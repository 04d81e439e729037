package app

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// nodelessAPI serves an API server without objects, but for the Node that arrives when come is closed. It returns a kubeconfig.
func nodelessAPI(t *testing.T, come <-chan struct{}) string {
	t.Helper()
	types := map[string]string{"services": "v1 Service", "nodes": "v1 Node", "endpointslices": "discovery.k8s.io/v1 EndpointSlice", "servicecidrs": "networking.k8s.io/v1 ServiceCIDR"}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		version, kind, known := strings.Cut(types[resource], " ")
		if !known {
			http.Error(w, "{}", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprintf(w, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[]}`, kind, version)
			return
		}
		send := func(event, metadata string) {
			fmt.Fprintf(w, `{"type":%q,"object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1",%s}}}`+"\n", event, kind, version, metadata)
			_ = http.NewResponseController(w).Flush()
		}
		send("BOOKMARK", `"annotations":{"k8s.io/initial-events-end":"true"}`)
		if resource == "nodes" {
			select {
			case <-come:
				send("ADDED", `"name":"node-a"`)
			case <-r.Context().Done():
			}
		}
		<-r.Context().Done()
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: %q}}]\n"+
		"users: [{name: x, user: {}}]\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n", s.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A cluster without a Node of this node's name: the log, the status and /readyz say so until there is one.
func TestClusterWithoutOurNode(t *testing.T) {
	come := make(chan struct{})
	arrive := sync.OnceFunc(func() { close(come) })
	defer arrive()
	p := begin(t, "run", "--kubeconfig", nodelessAPI(t, come), "--kube-api-content-type=application/json", "--hostname-override", "node-a", "--proxy-mode", "nftables",
		"--bind-address=127.0.0.1", "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s")
	p.says("in sync")
	p.says("Node node-a: the API server has no Node of this name")
	ready := func(want int, says string) {
		t.Helper()
		eventually(t, fmt.Sprintf("/readyz answers %d", want), func() error {
			resp, err := http.Get("http://127.0.0.1:10256/readyz")
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			if err == nil && (resp.StatusCode != want || !strings.Contains(string(body), says)) {
				err = fmt.Errorf("%d: %s", resp.StatusCode, body)
			}
			return err
		})
	}
	status := func(want int, says string) {
		t.Helper()
		eventually(t, fmt.Sprintf("status ends with %d", want), func() error {
			if code, out := run(t, "status"); code != want || !strings.Contains(out, says) {
				return errors.New(out)
			}
			return nil
		})
	}
	ready(http.StatusServiceUnavailable, "no Node with this node's name")
	status(1, "no Node of this name")
	arrive()
	ready(http.StatusOK, "ok")
	status(0, "problems 0")
	p.terminate()
}
