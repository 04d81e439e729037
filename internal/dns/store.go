package dns

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// StoreConfig configures a Store.
type StoreConfig struct {
	// Sources are the names that must appear in Event.Synced before the Store
	// answers for the cluster domain; a name that is not there before that may
	// exist. The source of addresses ("host") is of no interest here.
	Sources []string
	Metrics *Metrics         // nil = none
	Now     func() time.Time // nil = time.Now
}

// Store is the names of the cluster. Apply is for one goroutine; everything
// else may be called from any.
type Store struct {
	metrics *Metrics
	now     func() time.Time
	synced  atomic.Bool
	serial  atomic.Uint32
	onSet   atomic.Pointer[func(model.ServiceKey)]

	mu         sync.RWMutex
	services   map[model.ServiceKey]*record
	slices     map[model.SliceKey]*model.Slice
	namespaces map[string]int // number of Services
	reverse    map[netip.Addr][]pointer
	pending    map[string]struct{} // sources that have not delivered their list
	misses     misses
}

// record is all that is known under one Service key. The Service may be nil:
// slices often come first. Slices are the very values that package state
// holds, so remembering them costs a pointer each.
type record struct {
	service *model.Service
	seen    time.Time      // when it appeared, if that was after the first list
	slices  []*model.Slice // sorted by key
	left    map[string]time.Time
	view    *view // what queries see; immutable; nil if there is no Service
}

// pointer is one PTR target.
type pointer struct {
	key  model.ServiceKey
	host string // "" for a cluster IP
}

// NewStore makes an empty Store.
func NewStore(c StoreConfig) *Store {
	s := &Store{
		metrics: c.Metrics, now: c.Now,
		services: map[model.ServiceKey]*record{}, slices: map[model.SliceKey]*model.Slice{},
		namespaces: map[string]int{}, reverse: map[netip.Addr][]pointer{}, pending: map[string]struct{}{},
		misses: misses{since: map[model.ServiceKey]map[string]time.Time{}},
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.metrics == nil {
		s.metrics = NewMetrics()
	}
	for _, name := range c.Sources {
		s.pending[name] = struct{}{}
	}
	s.setSynced()
	return s
}

// Box is where events are fetched from; mailbox.Mailbox is one.
type Box interface {
	Bell() <-chan struct{}
	Drain() []model.Event
}

// Follow applies what box delivers until ctx ends.
func (s *Store) Follow(ctx context.Context, box Box) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-box.Bell():
			s.Apply(box.Drain())
		}
	}
}

// Apply folds events in, in order. Values are kept and must not change later.
func (s *Store) Apply(events []model.Event) {
	var dirty []model.ServiceKey
	triggers := map[model.ServiceKey]time.Time{}
	s.mu.Lock()
	for i := range events {
		ev := &events[i]
		switch {
		case ev.Service != nil:
			dirty = append(dirty, s.applyService(ev.Service.Key, ev.Service.Value)...)
		case ev.Slice != nil:
			keys := s.applySlice(ev.Slice.Key, ev.Slice.Value)
			for _, k := range keys {
				note(triggers, k, ev.Trigger)
			}
			dirty = append(dirty, keys...)
		case ev.Synced != "":
			delete(s.pending, ev.Synced)
		}
	}
	slices.SortFunc(dirty, model.ServiceKey.Compare)
	dirty = slices.Compact(dirty)
	for _, key := range dirty {
		s.rebuild(key)
	}
	s.setSynced()
	s.mu.Unlock()
	s.published(dirty, triggers)
}

func note(triggers map[model.ServiceKey]time.Time, key model.ServiceKey, at time.Time) {
	if old, ok := triggers[key]; !at.IsZero() && (!ok || at.Before(old)) {
		triggers[key] = at
	}
}

func (s *Store) setSynced() {
	if len(s.pending) == 0 {
		s.synced.Store(true)
		s.metrics.synced.Set(1)
	}
	s.metrics.services.Set(float64(len(s.services)))
}

// published tells the parked queries and the metrics.
func (s *Store) published(dirty []model.ServiceKey, triggers map[model.ServiceKey]time.Time) {
	if len(dirty) == 0 {
		return
	}
	s.serial.Add(1)
	now := s.now()
	for _, key := range dirty {
		v := s.view(key)
		if at, ok := triggers[key]; ok && v != nil {
			s.metrics.programming.WithLabelValues(v.kind.String()).Observe(max(0, now.Sub(at).Seconds()))
		}
		for _, waited := range s.misses.published(key, v, now) {
			s.metrics.firstMiss.Observe(waited.Seconds())
		}
		if f := s.onSet.Load(); f != nil {
			(*f)(key)
		}
	}
}

// notify sets who is told of every Service that changed. The function is
// called on the feeding goroutine and must not block.
func (s *Store) notify(f func(model.ServiceKey)) { s.onSet.Store(&f) }

func (s *Store) applyService(key model.ServiceKey, svc *model.Service) []model.ServiceKey {
	r := s.services[key]
	if r == nil {
		if svc == nil {
			return nil
		}
		r = s.record(key)
	}
	if r.service.Equal(svc) {
		return nil
	}
	switch {
	case r.service == nil:
		s.namespaces[key.Namespace]++
	case svc == nil:
		if s.namespaces[key.Namespace]--; s.namespaces[key.Namespace] == 0 {
			delete(s.namespaces, key.Namespace)
		}
	}
	if r.service == nil && s.synced.Load() {
		r.seen = s.now()
	}
	r.service = svc
	return []model.ServiceKey{key}
}

func (s *Store) record(key model.ServiceKey) *record {
	r := s.services[key]
	if r == nil {
		r = &record{}
		s.services[key] = r
	}
	return r
}

func (s *Store) applySlice(key model.SliceKey, sl *model.Slice) (dirty []model.ServiceKey) {
	old := s.slices[key]
	if old.Equal(sl) {
		return nil
	}
	if old != nil {
		r := s.services[old.Service]
		r.slices = slices.DeleteFunc(r.slices, func(o *model.Slice) bool { return o.Key == key })
		dirty = append(dirty, old.Service)
		delete(s.slices, key)
	}
	if sl == nil {
		return dirty
	}
	s.slices[key] = sl
	r := s.record(sl.Service)
	at, _ := slices.BinarySearchFunc(r.slices, key, func(o *model.Slice, k model.SliceKey) int {
		return model.ServiceKey(o.Key).Compare(model.ServiceKey(k))
	})
	r.slices = slices.Insert(r.slices, at, sl)
	return append(dirty, sl.Service)
}

// rebuild replaces the view of one Service and its reverse pointers.
func (s *Store) rebuild(key model.ServiceKey) {
	r := s.services[key]
	if r == nil {
		return
	}
	old := r.view
	if r.service == nil {
		r.view = nil
	} else {
		r.left = leavers(r.left, old, s.now())
		r.view = newView(r)
		for name := range r.view.hosts {
			delete(r.left, name)
		}
	}
	old.eachAddr(func(a netip.Addr, host string) { s.unpoint(a, pointer{key, host}) })
	r.view.eachAddr(func(a netip.Addr, host string) { s.point(a, pointer{key, host}) })
	if r.service == nil && len(r.slices) == 0 {
		delete(s.services, key)
	}
}

func (s *Store) point(a netip.Addr, p pointer) {
	if list := s.reverse[a]; !slices.Contains(list, p) {
		s.reverse[a] = append(slices.Clip(list), p) // readers may hold the old one
	}
}

func (s *Store) unpoint(a netip.Addr, p pointer) {
	var rest []pointer
	for _, o := range s.reverse[a] {
		if o != p {
			rest = append(rest, o)
		}
	}
	if len(rest) == 0 {
		delete(s.reverse, a)
		return
	}
	s.reverse[a] = rest
}
