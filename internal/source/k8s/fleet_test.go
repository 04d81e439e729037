package k8s

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fairlead/fairlead/internal/model"
)

// Of 5 000 nodes that see the same a few say it, others for another Service; a fleet of a few nodes is never silent.
func TestAFleetSaysItOnce(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	names := make([]string, 5000)
	for n := range names {
		names[n] = fmt.Sprintf("worker-%d.example", n)
	}
	for _, fleet := range []int64{1, 3, speakers, 5000} {
		for service := range 20 {
			ref := corev1.ObjectReference{Namespace: "shop", Name: fmt.Sprint("web-", service)}
			name := eventName(&ref, "NoEndpoints", "none", at)
			said := 0
			for _, host := range names[:fleet] {
				r := Recorder{host: host}
				if drawn(r.lot(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name}}), fleet) {
					said++
				}
			}
			least, most := min(int(fleet), 1), 25
			if fleet <= speakers {
				least, most = int(fleet), int(fleet)
			}
			if said < least || said > most {
				t.Errorf("%d of %d nodes say it of %s", said, fleet, ref.Name)
			}
		}
	}
}

// The name of an Event is the same on all nodes, and another for other words, another Service, and much later.
func TestEventNames(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	a := corev1.ObjectReference{Namespace: "shop", Name: "web", UID: "1"}
	again, other := a, a
	again.UID = "2"
	other.Namespace = "test"
	names := map[string]bool{}
	for _, name := range []string{
		eventName(&a, "R", "m", at), eventName(&a, "R", "n", at), eventName(&a, "S", "m", at),
		eventName(&again, "R", "m", at), eventName(&other, "R", "m", at), eventName(&a, "R", "m", at.Add(eventBucket)),
	} {
		names[name] = true
	}
	if len(names) != 6 || eventName(&a, "R", "m", at) != eventName(&a, "R", "m", at.Add(time.Second)) {
		t.Errorf("names %v", names)
	}
}

// Three agents report the same Event: each requests the number of Nodes once, the server keeps one Event, and no agent logs an error.
func TestAgentsShareAnEvent(t *testing.T) {
	f := newFakeAPI(t)
	for n := range 3 {
		f.put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", n)}})
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	now := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	said := make([]*Recorder, 3)
	for n := range said {
		s, err := New(Config{Kubeconfig: f.kubeconfig("", ""), Log: logger})
		if err != nil {
			t.Fatal(err)
		}
		s.serviceMark = func(name) (mark, bool) { return mark{}, false }
		said[n] = s.Recorder("fairlead", fmt.Sprint("n", n))
		said[n].clock = now
		said[n].WarnForAll(model.ServiceKey{Namespace: "shop", Name: "web"}, "NoEndpoints", "none")
	}
	posted := func() (n int, names map[string]bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		names = map[string]bool{}
		for _, e := range f.posted {
			names[e.Name] = true
		}
		return len(f.posted), names
	}
	for _, r := range said { // one after the other
		before, _ := posted()
		go func() { r.Run(ctx); done <- struct{}{} }()
		for n, _ := before, 0; n == before; n, _ = posted() {
			time.Sleep(time.Millisecond) // bounded by the test's own limit
		}
	}
	cancel()
	for range said {
		<-done
	}
	if n, names := posted(); n != 3 || len(names) != 1 {
		t.Errorf("%d Events were sent, with the names %v", n, names)
	}
	if log.Len() > 0 {
		t.Errorf("said: %s", log.String())
	}
	for n, r := range said {
		if r.fleet.nodes != 3 {
			t.Errorf("agent %d counts %d nodes", n, r.fleet.nodes)
		}
	}
}
