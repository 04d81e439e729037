package k8s

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// Status tells how fresh is what the source has delivered.
type Status struct {
	Connected bool      // every resource is being watched
	Synced    bool      // the first full list has been delivered
	LastHeard time.Time // when the resource that has been silent for longest was heard of last; bookmarks come about once a minute
	Since     time.Time // since when Connected is what it is
	Err       string    // why it is not connected
	Resources []ResourceStatus
}

// ResourceStatus is the Status of one resource, by its name in the API.
type ResourceStatus struct {
	Name      string // "services", "endpointslices", "nodes", "servicecidrs"
	Connected bool
	LastHeard time.Time
	Err       string
}

// origin is what the Problems of the connection are about.
const origin = "API server"

// tracker keeps the Status, and says when the connection is bad and well again.
type tracker struct {
	sink   func(model.Event)
	now    func() time.Time
	server string // its URL

	mu        sync.Mutex
	synced    bool // Synced has been told
	inPart    bool // Listed has been told
	since     time.Time
	connected bool
	resources []*resourceState
	told      []model.Problem
}

type resourceState struct {
	name      string
	optional  bool // its absence does not make the source disconnected
	essential bool // without it nothing can be decided
	connected bool
	listed    bool
	refused   bool // a list or a watch of it has failed
	lastHeard time.Time
	err       string
}

func (t *tracker) add(name string, need need) *resourceState {
	r := &resourceState{name: name, optional: need == optional, essential: need == essential}
	t.resources = append(t.resources, r)
	return r
}

// status returns the Status as of now.
func (t *tracker) status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Status{Connected: t.connected, Synced: t.synced, Since: t.since}
	first := true
	for _, r := range t.resources {
		s.Resources = append(s.Resources, ResourceStatus{r.name, r.connected, r.lastHeard, r.err})
		if r.optional {
			continue
		}
		if first || r.lastHeard.Before(s.LastHeard) {
			s.LastHeard, first = r.lastHeard, false
		}
		if s.Err == "" {
			s.Err = r.err
		}
	}
	return s
}

// heard notes that something came from the server.
func (t *tracker) heard(r *resourceState) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	r.lastHeard = now
}

// listed notes a full list.
func (t *tracker) listed(r *resourceState) {
	t.mu.Lock()
	r.listed = true
	t.progressLocked()
}

// refused notes that a list or a watch of a resource has failed.
func (t *tracker) refused(r *resourceState) {
	t.mu.Lock()
	r.refused = true
	t.progressLocked()
}

// progressLocked reports once that everything has been listed, and once that all has been that can be: Services and
// their endpoints, and of the rest what the server does not refuse. It unlocks.
func (t *tracker) progressLocked() {
	lacks := func(all func(*resourceState) bool) bool {
		return slices.ContainsFunc(t.resources, func(r *resourceState) bool { return !r.listed && !all(r) })
	}
	var event model.Event
	switch {
	case t.synced:
	case !lacks(func(*resourceState) bool { return false }):
		t.synced, event.Synced = true, Name
	case !t.inPart && !lacks(func(r *resourceState) bool { return r.refused && !r.essential }):
		t.inPart, event.Listed = true, Name
	}
	t.mu.Unlock()
	if event.Synced != "" || event.Listed != "" {
		event.Received = t.now()
		t.sink(event)
	}
}

// need is what the source does without a resource.
type need uint8

const (
	important need = iota // it is not connected, and Listed at most
	essential             // nothing can be decided
	optional              // a cluster may not have it, or not allow it
)

// answered notes how the server answered a list or a watch.
func (t *tracker) answered(r *resourceState, err error) {
	if errors.Is(err, context.Canceled) {
		return // we are being stopped
	}
	t.mu.Lock()
	r.connected, r.err = err == nil, ""
	if err != nil {
		r.err = explain(t.server, r.name, err)
	} else {
		r.lastHeard = t.now()
	}
	t.tellLocked()
}

// silent notes that the server should have answered by now. A firewall that drops
// packets makes the connection fail only after half a minute.
func (t *tracker) silent() {
	t.mu.Lock()
	for _, r := range t.resources {
		if !r.connected && !r.optional && r.err == "" {
			r.err = fmt.Sprintf("no answer from the API server at %s yet: still trying", t.server)
		}
	}
	t.tellLocked()
}

// tellLocked reports what stands, if that has changed. It unlocks.
func (t *tracker) tellLocked() {
	connected := !slices.ContainsFunc(t.resources, func(r *resourceState) bool { return !r.connected && !r.optional })
	if connected != t.connected {
		t.connected, t.since = connected, t.now()
	}
	var problems []model.Problem
	for _, r := range t.resources {
		p := model.Problem{Kind: model.Unavailable, Object: origin, Reason: r.err, Well: "reached the API server again"}
		if r.err != "" && !slices.Contains(problems, p) {
			problems = append(problems, p)
		}
	}
	news := !slices.Equal(problems, t.told)
	t.told = problems
	t.mu.Unlock()
	if news {
		t.sink(model.Event{Origin: origin, Problems: problems, Received: t.now()})
	}
}
