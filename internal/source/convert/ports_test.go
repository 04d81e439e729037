package convert

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A Service of very many ports costs what their number says: 20 000 took 1.3 s.
func TestManyPortsAreLinear(t *testing.T) {
	convert := func(n int) time.Duration {
		o := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", Type: corev1.ServiceTypeNodePort}}
		for i := range n {
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(i + 1), NodePort: int32(i + 1)})
		}
		best := time.Hour
		for range 3 {
			begin := time.Now()
			s, problems := New().Service(o)
			best = min(best, time.Since(begin))
			if len(s.Ports) != n || len(problems) != 0 {
				t.Fatalf("%d ports of %d, problems %v", len(s.Ports), n, problems)
			}
		}
		return best
	}
	convert(1000)
	small, large := convert(2000), convert(60_000)
	t.Logf("2 000 ports in %s, 60 000 in %s", small, large)
	if large > 600*small { // 30 times as many, and larger maps; 900 would be quadratic
		t.Errorf("2 000 ports take %s, 60 000 take %s", small, large)
	}
}
