package cluster

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// forbiddenFor returns how long the server refuses to list slices: longer than the minute after which the first release
// wrote its partial state, Services without endpoints. FAIRLEAD_FORBIDDEN_FOR=5m makes it longer.
func forbiddenFor(t *testing.T) time.Duration {
	text := os.Getenv("FAIRLEAD_FORBIDDEN_FOR")
	if text == "" {
		return 70 * time.Second
	}
	d, err := time.ParseDuration(text)
	must(t, err)
	return d
}

// testSlicesForbidden restarts the agent while the API server lets it list Services but forbids EndpointSlices. The
// rules in the kernel must keep serving, however long that lasts.
func testSlicesForbidden(t *testing.T, e *env) {
	web := clusterIPs(e.createService("web"))
	e.setBackends("web", 8080, "pod-a1", "pod-b1")
	other := clusterIPs(e.createService("other"))
	e.setBackends("other", 8080, "pod-a2")
	e.agent.start()
	e.eventually("the Service answers", e.reach(web, 8080, "pod-a1", "pod-b1"))
	e.eventually("the other answers", e.reach(other, 8080, "pod-a2"))

	tr := e.startTraffic(web)
	// conntrack drops a UDP flow that is unused for so long, and the next packet selects an endpoint again.
	tr.flows = slices.DeleteFunc(tr.flows, func(k *keptFlow) bool { return k.to.proto != netlab.TCP })
	e.agent.kill()
	allow := e.forbidSlices()
	e.agent.start()
	over := time.After(forbiddenFor(t))
	for waiting := true; waiting; {
		tr.goOn()
		e.agent.mustLive()
		select {
		case <-over:
			waiting = false
		default:
		}
	}
	allow()
	e.setBackends("other", 8080, "pod-b2")
	e.within(reconnect, "a change after slices may be listed again", e.reach(other, 8080, "pod-b2"))
	tr.stop()
}

// forbidSlices removes the right to read slices from the role of the agent's user, and returns the function that
// restores it.
func (e *env) forbidSlices() (allow func()) {
	e.t.Helper()
	roles := e.cluster.Admin.RbacV1().ClusterRoles()
	change := func(ctx context.Context, edit func([]rbacv1.PolicyRule) []rbacv1.PolicyRule) {
		e.t.Helper()
		role, err := roles.Get(ctx, "system:node-proxier", metav1.GetOptions{})
		must(e.t, err)
		role.Rules = edit(role.Rules)
		_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
		must(e.t, err)
	}
	var before []rbacv1.PolicyRule
	change(e.t.Context(), func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		before = rules
		return slices.DeleteFunc(slices.Clone(rules), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "endpointslices") })
	})
	restored := false
	allow = func() {
		if restored {
			return
		}
		restored = true
		change(context.Background(), func([]rbacv1.PolicyRule) []rbacv1.PolicyRule { return before })
	}
	e.t.Cleanup(allow)
	return allow
}
