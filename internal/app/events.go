package app

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

const (
	// emptyFor is how long a Service has no endpoint before an Event reports it: a rollout or a new Service may be
	// without endpoints for some seconds.
	emptyFor = time.Minute
	// emptyLook is how often that is checked.
	emptyLook = 5 * time.Second
	// requestsLook is how often the kernel's counters are read for requests to empty Services.
	requestsLook = time.Minute
)

// serviceEvents finds what users should read in "kubectl describe service". Every node finds the same; the
// recorder ensures that few nodes report it.
type serviceEvents struct {
	warn func(svc model.ServiceKey, reason, message string)
	// unsupported is dataplane.Caps.Unsupported; nil: all is served.
	unsupported func(*model.Frontend) string
	// requests, if this node counts them, reports which Services had requests on this node, and here reports what this node has seen.
	requests requests
	here     func(svc model.ServiceKey, reason, message string)
	asked    time.Time // when requests was asked last

	mu      sync.Mutex // the engine's goroutine writes, a timer's reads
	begun   bool       // the Services that an agent finds at its start have been seen
	empty   map[model.ServiceKey]emptiness
	claimed map[model.ServiceKey]string // what was reported of its claims
	lacking map[model.ServiceKey]string // and of what is not served of it
}

// requests reports which Services clients have asked for in vain.
type requests interface {
	readRefusals() // updates the counts of refusals
	refusedAt(svc model.ServiceKey) time.Time
}

// emptiness is since when a Service has no endpoint that may be used, and why.
type emptiness struct {
	since time.Time
	why   string
	said  bool
}

func newServiceEvents(warn func(model.ServiceKey, string, string), unsupported func(*model.Frontend) string) *serviceEvents {
	return &serviceEvents{warn: warn, unsupported: unsupported, empty: map[model.ServiceKey]emptiness{}, claimed: map[model.ServiceKey]string{}, lacking: map[model.ServiceKey]string{}}
}

// decided handles the decisions of a sync. Services that are empty when an agent starts are not reported: it may be the hundredth
// restart of an agent, and the Service may be empty on purpose. If requests are counted, those that clients use are reported.
func (s *serviceEvents) decided(list []engine.Decided, complete bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		d := &list[i]
		why := whyEmpty(&d.Result)
		if old, was := s.empty[d.Key]; why == "" {
			delete(s.empty, d.Key)
		} else if !was {
			s.empty[d.Key] = emptiness{since: now, why: why, said: !s.begun && s.requests == nil}
		} else {
			old.why = why
			s.empty[d.Key] = old
		}
		s.sayNew(s.claimed, d.Key, "AddressClaimed", lostClaim(&d.Result))
		s.sayNew(s.lacking, d.Key, "NotServed", s.unserved(&d.Result))
	}
	s.begun = s.begun || complete
}

// sayNew reports text about a Service unless it is the text that was reported last; "" clears it.
func (s *serviceEvents) sayNew(said map[model.ServiceKey]string, svc model.ServiceKey, reason, text string) {
	if text == "" {
		delete(said, svc)
	} else if said[svc] != text {
		said[svc] = text
		s.warn(svc, reason, text)
	}
}

// lostClaim returns which address or port a Service lost to another; "" if none.
func lostClaim(res *policy.Result) string {
	for i := range res.Notes {
		if n := &res.Notes[i]; n.Kind == policy.ClaimLost {
			return n.Text
		}
	}
	return ""
}

// unserved returns why the data plane does not serve a part of a Service; "" if it serves all.
func (s *serviceEvents) unserved(res *policy.Result) string {
	if s.unsupported == nil {
		return ""
	}
	for i := range res.Frontends {
		f := &res.Frontends[i]
		if why := s.unsupported(f); why != "" {
			return fmt.Sprintf("%s is not served: %s", f.Key, why)
		}
	}
	return ""
}

// whyEmpty returns why no connection to a Service can be answered; "" if one can, or if the Service has nothing to answer at.
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

// look reports the Services that have been empty for emptyFor, once each time that they become empty. If requests are counted, it
// reports only those with requests since then, and reads the kernel's counters once a minute.
func (s *serviceEvents) look(now time.Time) {
	late := s.late(now)
	if len(late) == 0 {
		return
	}
	say := s.warn
	if s.requests != nil {
		if now.Sub(s.asked) < requestsLook {
			return
		}
		s.asked, say = now, s.here
		s.requests.readRefusals()
		maps.DeleteFunc(late, func(svc model.ServiceKey, e emptiness) bool { return s.requests.refusedAt(svc).Before(e.since) })
	}
	for svc, e := range late {
		if s.toSay(svc, e.since) {
			say(svc, "NoEndpoints", "connections are refused: no usable endpoint for one minute: "+e.why)
		}
	}
}

// late returns the Services that have been empty for emptyFor and are not reported yet.
func (s *serviceEvents) late(now time.Time) map[model.ServiceKey]emptiness {
	s.mu.Lock()
	defer s.mu.Unlock()
	late := map[model.ServiceKey]emptiness{}
	for svc, e := range s.empty {
		if !e.said && now.Sub(e.since) >= emptyFor {
			late[svc] = e
		}
	}
	return late
}

// toSay marks a Service as reported, and returns true, unless it has got an endpoint since.
func (s *serviceEvents) toSay(svc model.ServiceKey, since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, is := s.empty[svc]
	if !is || e.since != since {
		return false
	}
	e.said = true
	s.empty[svc] = e
	return true
}

// run calls look every emptyLook until ctx ends.
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
