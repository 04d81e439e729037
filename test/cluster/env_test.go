package cluster

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/cluster/testcluster"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// env is the environment of one test: a Kubernetes namespace of its own, a clean node, and the subject, not yet
// started.
type env struct {
	*suite
	t         *testing.T
	namespace string
	agent     *agent
}

func (s *suite) newEnv(t *testing.T) *env {
	t.Helper()
	name := strings.ToLower(t.Name()[strings.LastIndexByte(t.Name(), '/')+1:])
	e := &env{suite: s, t: t, namespace: name}
	e.agent = &agent{t: t, bye: s.subject.bye, host: s.lab.Node(), log: filepath.Join(t.TempDir(), "subject.log")}
	e.useAccess(testcluster.Access{})
	_, err := s.cluster.Admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { s.cleanNode(t) })
	t.Cleanup(e.deleteObjects)
	t.Cleanup(e.agent.finish)
	return e
}

// useAccess sets how the subject reaches the API server from its next start on.
func (e *env) useAccess(a testcluster.Access) {
	e.t.Helper()
	path := filepath.Join(e.t.TempDir(), "kubeconfig")
	must(e.t, e.cluster.WriteKubeconfig(path, a))
	e.agent.args = append(append([]string{}, e.subject.args...), "--kubeconfig="+path)
}

// deleteObjects removes the test's Services, so that the next test does not see them. No controller runs that
// would empty the namespace.
func (e *env) deleteObjects() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	core, discovery := e.cluster.Admin.CoreV1().Services(e.namespace), e.cluster.Admin.DiscoveryV1().EndpointSlices(e.namespace)
	services, err := core.List(ctx, metav1.ListOptions{})
	if err != nil {
		e.t.Errorf("list services to delete them: %v", err)
		return
	}
	for _, s := range services.Items {
		if err := core.Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
			e.t.Errorf("delete service %s: %v", s.Name, err)
		}
	}
	if err := discovery.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		e.t.Errorf("delete the endpoint slices: %v", err)
	}
}

// eventually waits until fn succeeds, for at most the limit of one change, and fails the test with fn's last
// error.
func (e *env) eventually(what string, fn func(context.Context) error) {
	e.t.Helper()
	e.within(seen, what, fn)
}

func (e *env) within(limit time.Duration, what string, fn func(context.Context) error) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := fn(ctx)
		if err == nil {
			return
		}
		if last == nil || ctx.Err() == nil { // an error caused by the end of the time limit itself carries no information
			last = err
		}
		select {
		case <-ctx.Done():
			e.t.Fatalf("%s: not within %s: %v", what, limit, last)
		case <-tick.C:
		}
	}
}
