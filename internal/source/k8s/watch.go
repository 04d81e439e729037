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

// listWatch lists and watches one resource and records how the server answers.
type listWatch struct {
	client    rest.Interface
	resource  string
	kind      string // of one object, as a Go type name: "Service"
	narrow    func(*metav1.ListOptions)
	answered  func(error)
	listError func(error) // called with errors of lists only
	wentBack  func()      // called when the server's history turns out to be another one; see isBefore

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
		return nil, apierrors.NewResourceExpired("the history of the API server ends before resource version " + o.ResourceVersion)
	}
	l.again = l.again && o.SendInitialEvents != nil
	w, err := l.request(&o).Watch(ctx)
	switch {
	case isStale(err): // a new list follows
	case err != nil && o.SendInitialEvents != nil && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)):
		// The server does not support streaming lists, and the reflector requests a
		// plain one.
	case err == nil && reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch()):
		// client-go returns an empty watch for a connection that is accepted and
		// then closed, as the load balancer before a dead server does.
		l.answered(errNoAnswer)
	default:
		l.answered(err)
	}
	return w, err
}

// The resource versions of a server whose etcd was restored from a backup start again in the past. Such a server accepts a watch from the
// version that is known here, and sends nothing until it reaches that version (kubernetes#107457). So a watch that resumes where the last
// one ended, every five to ten minutes and after each broken connection, first requests one object in a consistent read, whose answer
// contains the server's current version. A lower version causes a list. A server that has passed the known version before that request is
// not detected.

// isBefore reports whether the server's history does not reach up to a resource version. It returns false if that is unknown, because
// the watch will then fail, too.
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

// forget makes the first list after such a restore request the current state, because the version known here
// is in the server's future.
func (l *listWatch) forget(o *metav1.ListOptions) {
	if l.again && (!o.Watch || o.SendInitialEvents != nil) {
		o.ResourceVersion = ""
		if o.SendInitialEvents == nil {
			o.ResourceVersionMatch = ""
		}
	}
}

// otherAnswer is the type of an answer to a list request that is not the requested list. It must not be taken for
// an empty list.
type otherAnswer string

// Error implements error.
func (o otherAnswer) Error() string { return "the answer is a " + string(o) }

var errNoAnswer = errors.New("the connection is closed before an answer arrives")

// List implements the older interface without a context.
func (l *listWatch) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), o)
}

// Watch implements the older interface without a context.
func (l *listWatch) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), o)
}

// isStale reports whether the error only says that the server no longer has the
// history since the known resource version. That is normal after an hour without a
// connection.
func isStale(err error) bool {
	return err != nil && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err))
}

// untilDone is the real clock, whose waits end with ctx. client-go's reflector
// finishes its pauses before it checks whether it must stop.
type untilDone struct {
	clock.RealClock
	ctx context.Context //nolint:containedctx // it is the clock's whole purpose
}

// After is time.After, or the end of ctx.
func (c untilDone) After(d time.Duration) <-chan time.Time {
	out := make(chan time.Time, 1) // buffered, so that the sender need not wait
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
