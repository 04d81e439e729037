package convert

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
			begin := threadTime(t)
			s, problems := New().Service(o)
			best = min(best, threadTime(t)-begin)
			if len(s.Ports) != n || len(problems) != 0 {
				t.Fatalf("%d ports of %d, problems %v", len(s.Ports), n, problems)
			}
		}
		return best
	}
	runtime.LockOSThread() // the processor's time of this thread, which a busy machine does not lengthen
	defer runtime.UnlockOSThread()
	convert(1000)
	small, large := convert(2000), convert(60_000)
	t.Logf("2 000 ports in %s, 60 000 in %s", small, large)
	if large > 600*small { // 30 times as many, and larger maps; 900 would be quadratic
		t.Errorf("2 000 ports take %s, 60 000 take %s", small, large)
	}
}

// threadTime is the processor time that the calling thread has used.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}
