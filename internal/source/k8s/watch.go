package k8s

import (
	"context"
	"errors"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// listWatch lists and watches one resource and notes how the server answers.
type listWatch struct {
	client    rest.Interface
	resource  string
	kind      string // of one object, as Go calls it: "Service"
	narrow    func(*metav1.ListOptions)
	answered  func(error)
	listError func(error) // told of errors of lists only
}

var (
	_ cache.ListerWatcher            = (*listWatch)(nil)
	_ cache.ListerWatcherWithContext = (*listWatch)(nil)
)

func (l *listWatch) request(o *metav1.ListOptions) *rest.Request {
	l.narrow(o)
	return l.client.Get().Resource(l.resource).VersionedParams(o, metav1.ParameterCodec)
}

// ListWithContext lists.
func (l *listWatch) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := l.request(&o).Do(ctx).Get()
	if err == nil && reflect.TypeOf(list).Elem().Name() != l.kind+"List" {
		list, err = nil, otherAnswer(reflect.TypeOf(list).Elem().Name())
	}
	if !isStale(err) {
		l.answered(err)
	}
	if err != nil {
		l.listError(err)
	}
	return list, err
}

// WatchWithContext watches.
func (l *listWatch) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	w, err := l.request(&o).Watch(ctx)
	switch {
	case isStale(err): // a new list follows
	case err != nil && o.SendInitialEvents != nil && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)):
		// A server that knows no streaming lists; the reflector asks for a plain one.
	case err == nil && reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch()):
		// What client-go makes of a connection that is accepted and then closed, as
		// the load balancer before a dead server does.
		l.answered(errNoAnswer)
	default:
		l.answered(err)
	}
	return w, err
}

// otherAnswer is what a server answered a list with, and is not that list. It must not be taken for an empty one.
type otherAnswer string

// Error implements error.
func (o otherAnswer) Error() string { return "the answer is a " + string(o) }

var errNoAnswer = errors.New("the connection is closed before an answer comes")

// List is for the interface of old.
func (l *listWatch) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), o)
}

// Watch is for the interface of old.
func (l *listWatch) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), o)
}

// isStale tells whether the server has only forgotten how far back we were,
// which is how things go after an hour without a connection.
func isStale(err error) bool {
	return err != nil && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err))
}

// untilDone is the real clock, whose waits end with ctx: client-go's reflector
// sits out its pauses before it looks whether it is to stop.
type untilDone struct {
	clock.RealClock
	ctx context.Context //nolint:containedctx // it is the clock's whole purpose
}

// After is time.After, or the end of ctx.
func (c untilDone) After(d time.Duration) <-chan time.Time {
	out := make(chan time.Time, 1) // so that the sender need not wait
	timer := time.NewTimer(d)
	go func() {
		defer timer.Stop()
		select {
		case <-c.ctx.Done():
		case <-timer.C:
		}
		out <- time.Now()
	}()
	return out
}
