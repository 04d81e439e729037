package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const startupTaint = "fairlead.dev/agent-not-ready"

// testStartupTaint: an agent without the right to change Nodes reports that and serves. Once it has the role of
// deploy/kustomize/startup-taint it removes its own taint, and no other. An agent without the flag leaves the taint in place.
func testStartupTaint(t *testing.T, e *env) {
	if e.subject.name != "fairlead" {
		t.Skip("the flag is Fairlead's") // kube-proxy as the subject has no such flag
	}
	other := corev1.Taint{Key: "example.com/other", Effect: corev1.TaintEffectNoSchedule}
	e.taint(corev1.Taint{Key: startupTaint, Effect: corev1.TaintEffectNoSchedule}, other)
	defer e.taint()
	web := clusterIPs(e.createService("web"))
	e.setBackends("web", 8080, "pod-a1")
	e.agent.start()
	e.eventually("the Service answers", e.reach(web, 8080, "pod-a1"))
	e.agent.kill()
	e.agent.args = append(e.agent.args, "--startup-taint="+startupTaint)
	e.agent.start()
	e.eventually("the agent says that it may not", func(context.Context) error {
		if said := e.agent.said(); !strings.Contains(said, "cannot remove the start-up taint from the node") || !strings.Contains(said, "forbidden") {
			return errors.New("not said")
		}
		return nil
	})
	if got := e.taints(t.Context()); len(got) != 2 {
		t.Errorf("taints of the node: %v", got)
	}
	e.mayPatchNodes()
	e.within(reconnect, "the taint goes, and the other stays", func(ctx context.Context) error {
		if got := e.taints(ctx); len(got) != 1 || got[0].Key != other.Key {
			return fmt.Errorf("taints %v", got)
		}
		return nil
	})
	e.agent.mustLive()
}

func (e *env) taints(ctx context.Context) []corev1.Taint {
	node, err := e.cluster.Admin.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	must(e.t, err)
	return node.Spec.Taints
}

func (e *env) taint(list ...corev1.Taint) {
	e.t.Helper()
	nodes := e.cluster.Admin.CoreV1().Nodes()
	for { // retried on a conflict: the agent may update the Node concurrently
		node, err := nodes.Get(context.Background(), nodeName, metav1.GetOptions{})
		must(e.t, err)
		node.Spec.Taints = list
		if _, err = nodes.Update(context.Background(), node, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			must(e.t, err)
			return
		}
	}
}

// mayPatchNodes grants the agent's user the role that the component has.
func (e *env) mayPatchNodes() {
	e.t.Helper()
	text, err := os.ReadFile("../../deploy/kustomize/startup-taint/rbac.yaml")
	must(e.t, err)
	first, second, _ := strings.Cut(string(text), "\n---\n")
	var role rbacv1.ClusterRole
	var binding rbacv1.ClusterRoleBinding
	must(e.t, yaml.UnmarshalStrict([]byte(first), &role))
	must(e.t, yaml.UnmarshalStrict([]byte(second), &binding))
	binding.Subjects = []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "system:kube-proxy"}}
	api, ctx := e.cluster.Admin.RbacV1(), context.Background()
	_, err = api.ClusterRoles().Create(ctx, &role, metav1.CreateOptions{})
	must(e.t, err)
	e.t.Cleanup(func() { must(e.t, api.ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{})) })
	_, err = api.ClusterRoleBindings().Create(ctx, &binding, metav1.CreateOptions{})
	must(e.t, err)
	e.t.Cleanup(func() { must(e.t, api.ClusterRoleBindings().Delete(ctx, binding.Name, metav1.DeleteOptions{})) })
}
