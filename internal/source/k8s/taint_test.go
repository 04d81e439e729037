package k8s

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Only the taints with the key are removed, from the agent's own Node only. A concurrent update by another
// program is not lost.
func TestRemoveTaint(t *testing.T) {
	const key = "fairlead.dev/agent-not-ready"
	f := newFakeAPI(t)
	mine := corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}
	also := corev1.Taint{Key: key, Value: "x", Effect: corev1.TaintEffectNoExecute}
	other, late := corev1.Taint{Key: "other", Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: "late", Effect: corev1.TaintEffectNoSchedule}
	put := func(name string, taints ...corev1.Taint) {
		f.put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints}})
	}
	left := func(name string) (got []corev1.Taint) {
		f.do(func() { got = f.kinds["nodes"].objects["/"+name].(*corev1.Node).Spec.Taints })
		return got
	}
	s, err := New(Config{Kubeconfig: f.kubeconfig("", ""), NodeName: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	remove := func(want bool, wrong string) {
		t.Helper()
		was, err := s.RemoveTaint(t.Context(), key)
		if was != want || (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("gives %t, %v; want %t and %q", was, err, want, wrong)
		}
	}
	put("n0", mine)
	remove(false, "the Node does not exist yet")
	put("n1", mine, other, also)
	f.do(func() {
		f.beforePatch = func() { put("n1", mine, other, also, late) } // between reading and writing
	})
	remove(false, "remove the taint "+key+" from node n1")
	if got := left("n1"); len(got) != 4 {
		t.Errorf("a patch of an old Node left %v", got)
	}
	f.do(func() { f.beforePatch = nil })
	remove(true, "")
	if got := left("n1"); !reflect.DeepEqual(got, []corev1.Taint{other, late}) {
		t.Errorf("left: %v", got)
	}
	remove(false, "")
	put("n1", mine)
	remove(true, "")
	if len(left("n1")) != 0 || len(left("n0")) != 1 {
		t.Errorf("left: %v, and of another node %v", left("n1"), left("n0"))
	}
	f.do(func() { f.refuse["nodes"] = http.StatusForbidden })
	remove(false, "read node n1")
}
