package k8s

import (
	"context"
	"errors"
	"reflect"
	"strconv"
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
	wentBack  func()      // told when the server's history turns out to be another one; see isBefore

	// Only the reflector's goroutine uses these, one request at a time.
	listed string // the resource version of the last list
	again  bool   // the next list must not refer to the past
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
	l.forget(&o)
	list, err := l.request(&o).Do(ctx).Get()
	if err == nil && reflect.TypeOf(list).Elem().Name() != l.kind+"List" {
		list, err = nil, otherAnswer(reflect.TypeOf(list).Elem().Name())
	}
	if !isStale(err) {
		l.answered(err)
	}
	if err != nil {
		l.listError(err)
	} else if m, is := list.(metav1.ListInterface); is {
		l.listed, l.again = m.GetResourceVersion(), false
	}
	return list, err
}

// WatchWithContext watches.
func (l *listWatch) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	l.forget(&o)
	if o.SendInitialEvents == nil && o.ResourceVersion != l.listed && l.isBefore(ctx, o.ResourceVersion) {
		l.again = true
		l.wentBack()
		return nil, apierrors.NewResourceExpired("the history of the API server does not reach up to resource version " + o.ResourceVersion)
	}
	l.again = l.again && o.SendInitialEvents != nil
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

// A server whose etcd was restored from a backup counts its resource versions from the past. It accepts a watch from the
// version that is known here, and says nothing until it gets there (kubernetes#107457). So a watch that goes on where the last one ended,
// every five to ten minutes and after each broken connection, asks first for one object, in a consistent read: it brings the
// server's version of now. A lower one leads to a list. A server that has passed the known version before it is asked is not found out.

// isBefore reports whether the server's history does not reach up to a resource version. It is false where that is not known: the watch
// will then fail, too.
func (l *listWatch) isBefore(ctx context.Context, known string) bool {
	ctx, cancel := context.WithTimeout(ctx, versionLimit)
	defer cancel()
	list, err := l.request(&metav1.ListOptions{Limit: 1}).Do(ctx).Get()
	m, is := list.(metav1.ListInterface)
	if err != nil || !is {
		return false
	}
	now, errNow := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	then, errThen := strconv.ParseUint(known, 10, 64)
	return errNow == nil && errThen == nil && now < then
}

// versionLimit is how long a watch waits for the server's resource version.
const versionLimit = 5 * time.Second

// forget makes a list after a return to the past one of now: the version known here is in the server's future.
func (l *listWatch) forget(o *metav1.ListOptions) {
	if l.again && (!o.Watch || o.SendInitialEvents != nil) {
		o.ResourceVersion = ""
		if o.SendInitialEvents == nil {
			o.ResourceVersionMatch = ""
		}
	}
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

// isStale reports whether the server has only forgotten how far back we were,
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
