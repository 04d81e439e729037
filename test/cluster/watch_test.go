package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/cluster/testcluster"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// testWatchGone: the agent was disconnected for longer than the server's watch history. Its watch gets 410 Gone, and it must
// list again and detect the deletions by itself.
func testWatchGone(t *testing.T, e *env) {
	gate, err := e.cluster.NewGate()
	must(t, err)
	t.Cleanup(gate.Close)
	e.useAccess(testcluster.Access{Gate: gate})
	steady, changed, doomed := clusterIPs(e.createService("steady")), clusterIPs(e.createService("changed")), clusterIPs(e.createService("doomed"))
	e.setBackends("steady", 8080, "pod-a1", "pod-b1")
	e.setBackends("changed", 8080, "pod-a1")
	e.setBackends("doomed", 8080, "pod-a2")
	e.agent.start()
	e.eventually("the Services answer", e.reach(steady, 8080, "pod-a1", "pod-b1"))
	e.eventually("the Services answer", e.reach(changed, 8080, "pod-a1"))

	tr := e.startTraffic(steady)
	seen := e.revision()
	gate.Shut()
	e.setBackends("changed", 8080, "pod-b1")
	e.deleteService("doomed")
	created := clusterIPs(e.createService("created"))
	e.setBackends("created", 8080, "pod-a3")
	e.cluster.KillAPIServer()
	must(t, e.cluster.StartAPIServer(t.Context())) // its watch cache begins here
	must(t, e.cluster.Compact(t.Context()))
	e.mustBeGone(seen)
	tr.goOn()
	gate.Open()
	e.within(reconnect, "a change from the time behind the gate", e.reach(changed, 8080, "pod-b1"))
	e.eventually("a Service created behind the gate", e.reach(created, 8080, "pod-a3"))
	e.eventually("a Service deleted behind the gate", e.silent(doomed))
	e.setBackends("changed", 8080, "pod-b2")
	e.eventually("a change seen by the new watch", e.reach(changed, 8080, "pod-b2"))
	tr.stop()
	e.agent.mustLive()
}

// revision returns the newest revision that a watcher of EndpointSlices can have seen.
func (e *env) revision() string {
	e.t.Helper()
	list, err := e.cluster.Admin.DiscoveryV1().EndpointSlices(e.namespace).List(e.t.Context(), metav1.ListOptions{})
	must(e.t, err)
	return list.ResourceVersion
}

// mustBeGone proves that the server no longer serves a watch from the revision, and thus none from an older one.
func (e *env) mustBeGone(revision string) {
	e.t.Helper()
	w, err := e.cluster.Admin.DiscoveryV1().EndpointSlices("").Watch(e.t.Context(), metav1.ListOptions{ResourceVersion: revision})
	if err == nil {
		defer w.Stop()
		select {
		case event := <-w.ResultChan():
			err = apierrors.FromObject(event.Object)
		case <-time.After(30 * time.Second):
		}
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		e.t.Errorf("watch from revision %s: got %v, want 410 Gone: the test does not test what it says", revision, err)
	}
}

// renewed bounds the wait for a renewed token file: client-go reads it again after 50 s, at its next retry, 30 s to 60 s
// apart.
const renewed = 150 * time.Second

// testTokenExpires: the token file is renewed late. Until then the server answers 401; afterwards the agent must read the new
// file.
func testTokenExpires(t *testing.T, e *env) {
	token := filepath.Join(t.TempDir(), "token")
	e.useAccess(testcluster.Access{TokenFile: token})
	web := clusterIPs(e.createService("web"))
	e.setBackends("web", 8080, "pod-a1")
	must(t, e.cluster.WriteToken(token, 8*time.Second))
	e.agent.start()
	e.eventually("the Service answers", e.reach(web, 8080, "pod-a1"))

	tr := e.startTraffic(web)
	e.within(reconnect, "the token expires", e.tokenRefused(token)) // the server caches a valid token for 10 s
	e.cluster.KillAPIServer()
	must(t, e.cluster.StartAPIServer(t.Context()))
	other := clusterIPs(e.createService("other"))
	e.setBackends("other", 8080, "pod-b1")
	e.within(reconnect, "the agent shows its old token", func(context.Context) error {
		if e.serverMetric("authentication_attempts", `result="error"`)+e.serverMetric("authentication_attempts", `result="failure"`) == 0 {
			return fmt.Errorf("no refused authentication yet")
		}
		return nil
	})
	e.agent.mustLive()
	must(t, e.cluster.WriteToken(token, time.Hour))
	e.within(renewed, "a change after the token was renewed", e.reach(other, 8080, "pod-b1"))
	tr.stop()
	e.agent.mustLive()
}

func (e *env) tokenRefused(path string) func(context.Context) error {
	return func(ctx context.Context) error {
		token, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		cfg := rest.AnonymousClientConfig(e.cluster.AdminREST)
		cfg.BearerToken = string(token)
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		_, err = client.CoreV1().Services("default").List(ctx, metav1.ListOptions{Limit: 1})
		if !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("list services: %v, want 401", err)
		}
		return nil
	}
}
