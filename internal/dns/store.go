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
	// Sources are the names that must appear in Event.Listed before names of the cluster
	// domain are answered, and in Event.Synced before one that is not there does not exist. The source of addresses ("host") is of no interest here.
	Sources []string
	// NodeName is this node's, to know which endpoints are its own pods.
	NodeName string
	// PodRanges are the addresses that pods have, as far as the configuration
	// says; see Store.pointers and Config.Allow.
	PodRanges []netip.Prefix
	// PodInterface is the device, or the beginning of the devices' names, behind
	// which this node's pods are; "" = not known.
	PodInterface string
	Metrics      *Metrics         // nil = none
	Now          func() time.Time // nil = time.Now
}

// Store holds the names of the cluster. Apply must be called from one goroutine; all
// other methods may be called from any.
type Store struct {
	metrics *Metrics
	now     func() time.Time
	synced  atomic.Bool
	listed  atomic.Bool
	serial  atomic.Uint32
	onSet   atomic.Pointer[func(model.ServiceKey)]

	mu         sync.RWMutex
	services   map[model.ServiceKey]*record
	slices     map[model.SliceKey]*model.Slice
	namespaces map[string]int // number of Services
	reverse    map[netip.Addr][]pointer
	// serviceRanges are the cluster's Service ranges: no endpoint has an address there.
	serviceRanges []netip.Prefix
	locals        locals
	pending       map[string]bool // sources that have not delivered their list; true: they have delivered what can be read of it
	misses        misses
}

// NewStore returns an empty Store.
func NewStore(c StoreConfig) *Store {
	s := &Store{
		metrics: c.Metrics, now: c.Now,
		services: map[model.ServiceKey]*record{}, slices: map[model.SliceKey]*model.Slice{},
		namespaces: map[string]int{}, reverse: map[netip.Addr][]pointer{}, pending: map[string]bool{},
		misses: misses{since: map[model.ServiceKey]map[string]time.Time{}},
	}
	s.locals = newLocals(&c)
	if s.now == nil {
		s.now = time.Now
	}
	if s.metrics == nil {
		s.metrics = NewMetrics()
	}
	for _, name := range c.Sources {
		s.pending[name] = false
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

// Apply updates the Store with events, in order. The Store keeps their values, which must not change later.
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
		case ev.Node != nil:
			s.locals.setNode(ev.Node.Key, ev.Node.Value)
		case ev.Host != nil:
			s.locals.setHost(ev.Host)
		case ev.CIDRs != nil:
			s.serviceRanges = ev.CIDRs.Prefixes
		case ev.Listed != "":
			if _, ok := s.pending[ev.Listed]; ok {
				s.pending[ev.Listed] = true
			}
		case ev.Synced != "":
			delete(s.pending, ev.Synced)
		}
	}
	slices.SortFunc(dirty, model.ServiceKey.Compare)
	dirty = slices.Compact(dirty)
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
	listed := true
	for _, l := range s.pending {
		listed = listed && l
	}
	s.listed.Store(listed)
	if len(s.pending) == 0 {
		s.synced.Store(true)
		s.metrics.synced.Set(1)
	}
	s.metrics.services.Set(float64(len(s.services)))
}

// published notifies the parked queries of changed Services and updates the metrics.
func (s *Store) published(dirty []model.ServiceKey, triggers map[model.ServiceKey]time.Time) {
	if len(dirty) == 0 {
		return
	}
	s.serial.Add(1)
	now := s.now()
	for _, key := range dirty {
		kind, waited := s.noLongerMissed(key, now)
		if at, ok := triggers[key]; ok && kind != noService {
			s.metrics.programming.WithLabelValues(kind.String()).Observe(max(0, now.Sub(at).Seconds()))
		}
		for _, d := range waited {
			s.metrics.firstMiss.Observe(d.Seconds())
		}
		if f := s.onSet.Load(); f != nil {
			(*f)(key)
		}
	}
}

func (s *Store) noLongerMissed(key model.ServiceKey, now time.Time) (kind, []time.Duration) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.services[key]
	if r.kind() != headless {
		return r.kind(), nil
	}
	return headless, s.misses.published(key, r.has, now)
}

// notify sets the function that is called for every Service that changed. It is
// called on the goroutine of Apply and must not block.
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
	r.setService(svc, s)
	s.tidy(r)
	return []model.ServiceKey{key}
}

func (s *Store) record(key model.ServiceKey) *record {
	r := s.services[key]
	if r == nil {
		r = &record{key: key}
		s.services[key] = r
	}
	return r
}

// tidy drops the cached census of the record, and the record itself if it is empty.
func (s *Store) tidy(r *record) {
	r.census.Store(nil)
	if r.service == nil && len(r.slices) == 0 {
		delete(s.services, r.key)
	}
}

func (s *Store) applySlice(key model.SliceKey, sl *model.Slice) (dirty []model.ServiceKey) {
	old := s.slices[key]
	if old.Equal(sl) {
		return nil
	}
	s.locals.replace(old, sl)
	if old != nil && (sl == nil || sl.Service != old.Service) {
		r := s.services[old.Service]
		r.replaceSlice(old, nil, s)
		s.tidy(r)
		dirty = append(dirty, old.Service)
		old = nil
	}
	if sl == nil {
		delete(s.slices, key)
		return dirty
	}
	s.slices[key] = sl
	r := s.record(sl.Service)
	r.replaceSlice(old, sl, s)
	s.tidy(r)
	return append(dirty, sl.Service)
}

// ClusterIPs returns the addresses of a Service; none if it is not known.
func (s *Store) ClusterIPs(key model.ServiceKey) []netip.Addr {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r := s.services[key]; r != nil && r.service != nil {
		return r.service.ClusterIPs
	}
	return nil
}

// Synced reports whether every source has delivered its first list.
func (s *Store) Synced() bool { return s.synced.Load() }

// Listed reports whether every source has delivered its first list, or what can be read of it (model.Event.Listed). A name that the Store
// has exists then. One that it lacks may exist unless Synced.
func (s *Store) Listed() bool { return s.listed.Load() }
