package k8s

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/fairlead/fairlead/internal/model"
)

// Bounds of what is recorded. client-go's own recorder has similar bounds, but
// depends on the OpenAPI libraries, for patches of Events that the agent does not
// need.
const (
	eventBurst   = 5 // Events of one object in a burst, and then one per eventPause
	eventPause   = 5 * time.Minute
	eventRepeat  = 10 * time.Minute // before the same text is repeated for an object
	eventObjects = 1024             // objects whose Events are limited one by one
	eventQueue   = 100              // Events that wait for a server that does not answer
	eventTimeout = 10 * time.Second
)

// Recorder writes Kubernetes Events, for users of "kubectl describe". Events beyond
// the bounds are dropped, and no caller ever blocks.
type Recorder struct {
	source          *Source
	component, host string
	queue           chan posting // of eventQueue: a burst at startup must not be lost
	clock           clock.Clock
	fleet           fleet // used by Run only

	mu       sync.Mutex
	accounts map[corev1.ObjectReference]*account
}

// posting is an Event in the queue.
type posting struct {
	event  *corev1.Event
	common bool // every node sees the same
	due    time.Time
}

// account records the Events of one object.
type account struct {
	limit flowcontrol.PassiveRateLimiter
	said  map[string]time.Time // the time of the last Event, by reason and message
}

// Recorder returns a Recorder whose Events name component on host as their source.
// It writes nothing before its Run.
func (s *Source) Recorder(component, host string) *Recorder {
	return &Recorder{
		source: s, component: component, host: host, clock: clock.RealClock{},
		queue: make(chan posting, eventQueue), accounts: make(map[corev1.ObjectReference]*account),
	}
}

// Run writes the recorded Events until ctx ends. An Event that the server refuses
// is dropped with a debug line, because nothing relies on it.
func (r *Recorder) Run(ctx context.Context) {
	var waiting []posting
	for {
		var timer <-chan time.Time
		if len(waiting) > 0 {
			timer = time.After(time.Until(waiting[0].due))
		}
		select {
		case <-ctx.Done():
			return
		case p := <-r.queue:
			nodes, lot := r.size(ctx), r.lot(p.event)
			if (!p.common || drawn(lot, nodes)) && len(waiting) < eventQueue {
				p.due = time.Now().Add(time.Duration(lot * float64(nodes) * float64(eventSpread)))
				waiting = append(waiting, p)
				slices.SortFunc(waiting, func(a, b posting) int { return a.due.Compare(b.due) })
			}
		case <-timer:
			e := waiting[0].event
			waiting = waiting[1:]
			// If the Event exists already, another agent, or an earlier run of this one, has
			// reported it.
			if err := r.write(ctx, e); err != nil && ctx.Err() == nil && !apierrors.IsAlreadyExists(err) {
				r.source.config.Log.Debug("cannot create an Event; it is dropped", "object", e.InvolvedObject.Name, "reason", e.Reason, "err", err)
			}
		}
	}
}

func (r *Recorder) write(ctx context.Context, e *corev1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	err := r.source.clients.events.Post().Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("create event %s/%s: %w", e.Namespace, e.Name, err)
	}
	return nil
}

// Warn records a Warning on a Service about a fact of this node. reason is one CamelCase word. If several nodes
// report the same text, only one Event is stored: the API server refuses a second Event with the same name.
func (r *Recorder) Warn(service model.ServiceKey, reason, message string) {
	r.record(service, reason, message, false)
}

// WarnForAll records a Warning about a fact that every node sees alike. A few nodes of the fleet are drawn to report it.
func (r *Recorder) WarnForAll(service model.ServiceKey, reason, message string) {
	r.record(service, reason, message, true)
}

func (r *Recorder) record(service model.ServiceKey, reason, message string, common bool) {
	ref := corev1.ObjectReference{Kind: "Service", APIVersion: "v1", Namespace: service.Namespace, Name: service.Name}
	// "kubectl describe" asks for the Events of this UID only.
	if m, ok := r.source.serviceMark(name{service.Namespace, service.Name}); ok && m.uid != (uid{}) {
		ref.UID = m.uid.text()
	}
	now := r.clock.Now()
	if !r.allow(ref, reason+"\x00"+message, now) {
		return
	}
	at := metav1.NewTime(now)
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: ref.Namespace, Name: eventName(&ref, reason, message, now)},
		InvolvedObject: ref, Reason: reason, Message: message, Type: corev1.EventTypeWarning,
		Source:         corev1.EventSource{Component: r.component, Host: r.host},
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		ReportingController: r.component, ReportingInstance: r.host,
	}
	select {
	case r.queue <- posting{event: e, common: common}:
	default: // the queue is full because the server has not answered for a long time
	}
}

func (r *Recorder) newLimit() flowcontrol.PassiveRateLimiter {
	return flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(float32(1/eventPause.Seconds()), eventBurst, r.clock)
}

// allow reports whether an Event of an object may be written now.
func (r *Recorder) allow(ref corev1.ObjectReference, words string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.accounts[ref]
	if a == nil {
		if len(r.accounts) >= eventObjects {
			clear(r.accounts)
		}
		a = &account{limit: r.newLimit(), said: make(map[string]time.Time)}
		r.accounts[ref] = a
	}
	if said, ok := a.said[words]; ok && now.Sub(said) < eventRepeat {
		return false
	}
	if !a.limit.TryAccept() {
		return false
	}
	for w, said := range a.said {
		if now.Sub(said) >= eventRepeat {
			delete(a.said, w)
		}
	}
	a.said[words] = now
	return true
}
