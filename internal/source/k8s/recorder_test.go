package k8s

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fairlead/fairlead/internal/model"
)

func TestEventsAreWritten(t *testing.T) {
	f := newFakeAPI(t)
	populate(f)
	l := start(t, f, nil)
	l.until(t, "synced", l.synced)
	r := l.source.Recorder("fairlead", "n1")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	r.Warn(model.ServiceKey{Namespace: "default", Name: "web"}, "Quarantined", "the kernel refuses it")
	l.until(t, "the Event", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.posted) == 1
	})
	cancel()
	<-done
	web := f.posted[0]
	if ref := web.InvolvedObject; ref.Kind != "Service" || ref.Namespace != "default" || string(ref.UID) != string(service("web", "").UID) {
		t.Errorf("the Service's Event is about %+v", ref)
	}
	if web.Namespace != "default" || web.Type != corev1.EventTypeWarning || web.Reason != "Quarantined" ||
		web.Source.Component != "fairlead" || web.Source.Host != "n1" || web.Count != 1 {
		t.Errorf("got %+v", web)
	}
}

// One object has a few Events, then few more. Another object is not affected. A
// full queue blocks no caller.
func TestEventsAreLimited(t *testing.T) {
	f := newFakeAPI(t)
	s, err := New(Config{Kubeconfig: f.kubeconfig("", "")})
	if err != nil {
		t.Fatal(err)
	}
	r := s.Recorder("fairlead", "n1")
	now := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	r.clock = now
	a, b := model.ServiceKey{Namespace: "default", Name: "a"}, model.ServiceKey{Namespace: "default", Name: "b"}
	said := func(fn func()) int {
		before := len(r.queue)
		fn()
		return len(r.queue) - before
	}
	steps := []struct {
		what string
		do   func()
		want int
	}{
		{"the same ten times", func() {
			for range 10 {
				r.Warn(a, "R", "same")
			}
		}, 1},
		{"ten different", func() {
			for i := range 10 {
				r.Warn(a, "R", string(rune('a'+i)))
			}
		}, eventBurst - 1},
		{"another object", func() { r.Warn(b, "R", "same") }, 1},
		{"one more after the pause", func() { now.Step(eventPause + time.Second); r.Warn(a, "R", "x"); r.Warn(a, "R", "y") }, 1},
		{"the same much later", func() { now.Step(eventRepeat); r.Warn(a, "R", "same") }, 1},
		{"a flood", func() {
			for i := range 2 * eventObjects {
				r.Warn(model.ServiceKey{Namespace: "default", Name: string(rune(0x4e00 + i))}, "R", "m")
			}
		}, eventQueue - 8},
	}
	for _, step := range steps {
		if got := said(step.do); got != step.want {
			t.Errorf("%s: %d Events, want %d", step.what, got, step.want)
		}
	}
	if len(r.accounts) > eventObjects || len(r.queue) != eventQueue {
		t.Errorf("%d accounts, %d queued", len(r.accounts), len(r.queue))
	}
}

func TestUID(t *testing.T) {
	for _, text := range []types.UID{"", "x", "0c7b3a8e-7d0e-4a3b-9d0b-1f2e3d4c5b6", "0c7b3a8e-7d0e-4a3b-9d0b-1f2e3d4c5b6z", "0123456789abcdef0123456789abcdef0123"} {
		if got := uidOf(text); got != (uid{}) {
			t.Errorf("%q is read as %v", text, got)
		}
	}
	if want := service("web", "").UID; uidOf(want).text() != want {
		t.Errorf("got %s, want %s", uidOf(want).text(), want)
	}
}
