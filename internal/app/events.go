package app

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

const (
	// emptyFor is how long a Service has nothing behind it before an Event says so: a rollout or a new Service may be
	// without endpoints for some seconds.
	emptyFor = time.Minute
	// emptyLook is how often that is looked at.
	emptyLook = 5 * time.Second
)

// serviceEvents finds what users should read in "kubectl describe service". What it finds every node sees alike; the
// recorder sees to it that few of them say it.
type serviceEvents struct {
	warn func(svc model.ServiceKey, reason, message string)

	mu      sync.Mutex // the engine's goroutine writes, a timer's reads
	begun   bool       // the Services that an agent finds at its start have been seen
	empty   map[model.ServiceKey]emptiness
	claimed map[model.ServiceKey]string
}

// emptiness is since when a Service has no endpoint that may be used, and why.
type emptiness struct {
	since time.Time
	why   string
	said  bool
}

func newServiceEvents(warn func(model.ServiceKey, string, string)) *serviceEvents {
	return &serviceEvents{warn: warn, empty: map[model.ServiceKey]emptiness{}, claimed: map[model.ServiceKey]string{}}
}

// decided takes in a turn's decisions. Services that are empty when an agent starts are nothing new: it may be the hundredth
// restart of an agent, and the Service may be empty on purpose.
func (s *serviceEvents) decided(list []engine.Decided, complete bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		d := &list[i]
		why := whyEmpty(&d.Result)
		if old, was := s.empty[d.Key]; why == "" {
			delete(s.empty, d.Key)
		} else if !was {
			s.empty[d.Key] = emptiness{since: now, why: why, said: !s.begun}
		} else {
			old.why = why
			s.empty[d.Key] = old
		}
		s.claims(d)
	}
	s.begun = s.begun || complete
}

// claims says that a Service lost an address or port to another, when that is new.
func (s *serviceEvents) claims(d *engine.Decided) {
	at := slices.IndexFunc(d.Result.Notes, func(n policy.Note) bool { return n.Kind == policy.ClaimLost })
	if at < 0 {
		delete(s.claimed, d.Key)
		return
	}
	if text := d.Result.Notes[at].Text; s.claimed[d.Key] != text {
		s.claimed[d.Key] = text
		s.warn(d.Key, "AddressClaimed", text)
	}
}

// whyEmpty says why no connection to a Service can be answered; "" if one can, or if the Service has nothing to answer at.
func whyEmpty(res *policy.Result) string {
	for i := range res.Frontends {
		if f := &res.Frontends[i]; len(f.Backends)+len(f.LocalBackends) > 0 {
			return ""
		}
	}
	for _, n := range res.Notes {
		if n.Kind == policy.NoEndpoints || n.Kind == policy.NotReady {
			return n.Text
		}
	}
	return ""
}

// look says which Services have been empty for long, each time that they become so once.
func (s *serviceEvents) look(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, e := range s.empty {
		if e.said || now.Sub(e.since) < emptyFor {
			continue
		}
		e.said = true
		s.empty[key] = e
		s.warn(key, "NoEndpoints", "connections are refused: for a minute there has been no endpoint that could answer: "+e.why)
	}
}

// run looks until ctx ends.
func (s *serviceEvents) run(ctx context.Context) error {
	tick := time.NewTicker(emptyLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			s.look(now)
		}
	}
}
