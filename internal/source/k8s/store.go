package k8s

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/internal/model"
)

// name is the name of an object. namespace is "" for a cluster-scoped object.
type name struct{ namespace, name string }

// mark is the state that is kept of an object.
type mark struct {
	digest uint64
	uid    uid // Services only
}

// item is an object that has been converted.
type item[V any] struct {
	name     name
	mark     mark
	value    V
	problems []model.Problem
}

// store receives the objects of a reflector. It converts them, forwards changes to
// the sink, and keeps marks.
type store[V any] struct {
	convert func(runtime.Object) (item[V], error)
	changed func(item[V])
	gone    func(name)
	// listed is called after every full list.
	listed func()
	// heard is called for every response of the server.
	heard func()
	state *resourceState

	mu    sync.Mutex // the recorder looks up UIDs concurrently
	marks map[name]mark
}

var (
	_ cache.TransformingStore      = (*store[int])(nil)
	_ cache.ResourceVersionUpdater = (*store[int])(nil)
	_ cache.ReflectorBookmarkStore = (*store[int])(nil)
)

// Transformer makes the reflector convert the objects of a streaming list as they
// arrive, so that it never holds the whole list in the large form of Kubernetes.
func (s *store[V]) Transformer() cache.TransformFunc { return s.transform }

func (s *store[V]) transform(o any) (any, error) {
	if done, ok := o.(*item[V]); ok {
		return done, nil
	}
	object, ok := o.(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("convert object: %T is not an object", o)
	}
	s.heard()
	converted, err := s.convert(object)
	if err != nil {
		return nil, err
	}
	return &converted, nil
}

// Add handles an object, which may be known already.
func (s *store[V]) Add(o any) error {
	converted, err := s.transform(o)
	if err != nil {
		return err
	}
	s.take(converted.(*item[V]))
	return nil
}

// Update is Add: the type of an event does not prove whether the object is known.
func (s *store[V]) Update(o any) error { return s.Add(o) }

func (s *store[V]) take(i *item[V]) {
	s.mu.Lock()
	known, ok := s.marks[i.name]
	s.marks[i.name] = i.mark
	s.mu.Unlock()
	if !ok || known != i.mark {
		s.changed(*i)
	}
}

// Delete handles the removal of an object.
func (s *store[V]) Delete(o any) error {
	s.heard()
	if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = tombstone.Obj
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return fmt.Errorf("delete object: %w", err)
	}
	s.drop(name{m.GetNamespace(), m.GetName()})
	return nil
}

func (s *store[V]) drop(n name) {
	s.mu.Lock()
	_, ok := s.marks[n]
	delete(s.marks, n)
	s.mu.Unlock()
	if ok {
		s.gone(n)
	}
}

// Replace handles a full list: a known object that is not in it is gone. Removals are delivered first, because new
// objects may have their addresses.
func (s *store[V]) Replace(list []any, _ string) error {
	s.heard()
	present := make(map[name]struct{}, len(list))
	for i, o := range list {
		converted, err := s.transform(o)
		if err != nil {
			return err
		}
		list[i] = converted // release the large form object by object
		present[converted.(*item[V]).name] = struct{}{}
	}
	s.mu.Lock()
	var missing []name
	for n := range s.marks {
		if _, ok := present[n]; !ok {
			missing = append(missing, n)
		}
	}
	s.mu.Unlock()
	for _, n := range missing {
		s.drop(n)
	}
	for i, o := range list {
		s.take(o.(*item[V]))
		list[i] = nil
	}
	s.listed()
	return nil
}

// Resync does nothing, because all changes have been delivered already.
func (s *store[V]) Resync() error { return nil }

// UpdateResourceVersion is called for every event.
func (s *store[V]) UpdateResourceVersion(string) { s.heard() }

// Bookmark is called about once a minute, when no other event arrives.
func (s *store[V]) Bookmark(string) error { s.heard(); return nil }

// markOf returns the mark of an object.
func (s *store[V]) markOf(n name) (mark, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.marks[n]
	return m, ok
}
