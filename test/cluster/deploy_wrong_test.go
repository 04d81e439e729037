package cluster

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// neverReady is how long the test watches an agent that must not become Ready. pastTheMinute is used for one such agent: it
// is longer than the minute after which the agent of 7e23309 accepted an empty cluster as the desired state.
const neverReady, pastTheMinute = 3 * time.Second, 65 * time.Second

// testDeployedWrong runs deploy/ with the most common mistakes: the address left as in the example or mistyped, no role,
// half a role, an expired token. The agent must report the cause at once, keep running, and never be Ready: otherwise a
// rollout would continue over it.
func testDeployedWrong(t *testing.T, e *env) {
	if e.subject.name != "fairlead" {
		t.Skip("deploy/ is Fairlead's") // with SUBJECT=kube-proxy there is nothing to deploy
	}
	e.createService("web")
	e.setBackends("web", 8080, "pod-a1")
	ds := e.deployed()
	c := &ds.Spec.Template.Spec.Containers[0]
	for _, wrong := range []struct {
		name  string
		edit  map[string]string
		spoil func(*env) (mend func())
		token time.Duration
		says  []string
		watch time.Duration
	}{
		{name: "address left as it is", says: []string{"API-SERVER-ADDRESS"}, token: time.Hour, watch: neverReady},
		{name: "nobody listens there", edit: map[string]string{"API-SERVER-ADDRESS": "127.0.0.1"}, token: time.Hour,
			says: []string{"cannot reach the API server at https://127.0.0.1:6443", "connection refused"}, watch: pastTheMinute},
		{name: "no role", edit: e.apiServer(), spoil: (*env).withoutRole, token: time.Hour,
			says: []string{"forbidden", "services", "endpointslices"}, watch: neverReady},
		{name: "half a role", edit: e.apiServer(), spoil: (*env).withHalfARole, token: time.Hour, says: []string{"forbidden", "endpointslices"}, watch: neverReady},
		{name: "expired token", edit: e.apiServer(), token: -time.Hour, says: []string{"token"}, watch: neverReady},
	} {
		t.Run(wrong.name, func(t *testing.T) {
			one := *e
			e := &one
			e.t = t
			pod := e.podFiles(ds)
			must(t, e.cluster.WriteToken(filepath.Join(pod, "token"), wrong.token))
			if wrong.spoil != nil {
				mend := wrong.spoil(e)
				defer mend()
			}
			e.agent = &agent{t: t, bye: true, host: e.lab.Node(), log: filepath.Join(t.TempDir(), "subject.log"), args: e.container(c, pod, wrong.edit)}
			defer e.agent.finish()
			began := time.Now()
			e.agent.start()
			e.eventually("the log has the reason", func(context.Context) error {
				for _, word := range wrong.says {
					if !strings.Contains(e.agent.said(), word) {
						return fmt.Errorf("it does not say %q", word)
					}
				}
				return nil
			})
			t.Logf("the reason is in the log after %s", time.Since(began).Round(time.Millisecond))
			e.eventually("the liveness probe", e.probe(c.LivenessProbe))
			e.staysUnready(c.ReadinessProbe, wrong.watch)
			if strings.Contains(e.agent.said(), "in sync") || strings.Contains(e.agent.said(), "bad input") {
				t.Error("the log says that the agent is in sync, or that somebody's object is at fault")
			}
			e.agent.mustLive()
			e.agent.terminate()
		})
	}
}

// staysUnready repeats the probe until the limit and fails the test if one answer is not 503.
func (e *env) staysUnready(p *corev1.Probe, limit time.Duration) {
	e.t.Helper()
	ask := e.probe(p)
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(200 * time.Millisecond) { // bounded poll
		err := ask(e.t.Context())
		if err == nil {
			e.t.Fatalf("Ready after %s", limit-time.Until(end))
		}
		if !strings.Contains(err.Error(), http.StatusText(http.StatusServiceUnavailable)) {
			e.t.Fatalf("the readiness probe: %v, want an answer of 503", err)
		}
	}
}

// withoutRole removes the account's role and returns a function that restores it.
func (e *env) withoutRole() (mend func()) {
	e.t.Helper()
	api := e.cluster.Admin.RbacV1().ClusterRoleBindings()
	b, err := api.Get(e.t.Context(), "fairlead", metav1.GetOptions{})
	must(e.t, err)
	must(e.t, api.Delete(e.t.Context(), b.Name, metav1.DeleteOptions{}))
	e.eventually("the role is gone", e.may("services", false))
	return func() {
		b.ResourceVersion, b.UID = "", ""
		_, err := api.Create(e.t.Context(), b, metav1.CreateOptions{})
		must(e.t, err)
		e.eventually("the role is back", e.may("services", true))
	}
}

// withHalfARole removes the right to read EndpointSlices and returns a function that restores it.
func (e *env) withHalfARole() (mend func()) {
	e.t.Helper()
	whole := e.changeRole(func(r *rbacv1.ClusterRole) {
		var left []rbacv1.PolicyRule
		for _, rule := range r.Rules {
			if rule.Resources[0] != "endpointslices" {
				left = append(left, rule)
			}
		}
		r.Rules = left
	})
	e.eventually("half of the role is gone", e.may("endpointslices", false))
	return func() {
		e.changeRole(func(r *rbacv1.ClusterRole) { r.Rules = whole })
		e.eventually("the role is whole", e.may("endpointslices", true))
	}
}

func (e *env) changeRole(change func(*rbacv1.ClusterRole)) (before []rbacv1.PolicyRule) {
	e.t.Helper()
	api := e.cluster.Admin.RbacV1().ClusterRoles()
	role, err := api.Get(e.t.Context(), "fairlead", metav1.GetOptions{})
	must(e.t, err)
	before = role.Rules
	change(role)
	_, err = api.Update(e.t.Context(), role, metav1.UpdateOptions{})
	must(e.t, err)
	return before
}

// may returns an error unless the account's right to list the resource is as wanted, that is, until the server's rights are
// up to date.
func (e *env) may(resource string, want bool) func(context.Context) error {
	group := map[string]string{"endpointslices": "discovery.k8s.io"}[resource]
	return func(ctx context.Context) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:kube-system:fairlead",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Group: group, Resource: resource}}}
		got, err := e.cluster.Admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil && got.Status.Allowed != want {
			err = fmt.Errorf("allowed to list %s: %t", resource, got.Status.Allowed)
		}
		return err
	}
}
