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

// Status reports how fresh the state is that the source has delivered.
type Status struct {
	Connected bool      // every resource that is not optional is being watched
	Synced    bool      // the first full list has been delivered
	LastHeard time.Time // the oldest time of the last response, over all resources; bookmarks come about once a minute
	Since     time.Time // time of the last change of Connected
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

// origin is the Origin and Object of the Problems of the connection.
const origin = "API server"

// tracker keeps the Status. It reports when the connection fails and when it
// recovers.
type tracker struct {
	sink   func(model.Event)
	now    func() time.Time
	server string // the server's URL

	mu        sync.Mutex
	synced    bool // Synced has been delivered
	inPart    bool // Listed has been delivered
	since     time.Time
	connected bool
	resources []*resourceState
	told      []model.Problem
}

type resourceState struct {
	name      string
	optional  bool // its absence does not make the source disconnected
	essential bool // without it no decision is possible
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

// status returns the current Status.
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

// heard records the time of a response from the server.
func (t *tracker) heard(r *resourceState) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	r.lastHeard = now
}

// listed records that a full list of a resource has arrived.
func (t *tracker) listed(r *resourceState) {
	t.mu.Lock()
	r.listed = true
	t.progressLocked()
}

// refused records that a list or a watch of a resource has failed.
func (t *tracker) refused(r *resourceState) {
	t.mu.Lock()
	r.refused = true
	t.progressLocked()
}

// progressLocked delivers Synced once, when all resources have been listed. It delivers Listed once, when Services,
// their endpoints, and all other resources that the server does not refuse have been listed. It unlocks the mutex.
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

// need is how much the source depends on a resource.
type need uint8

const (
	important need = iota // without it the source is not connected, and delivers Listed at most
	essential             // without it no decision is possible
	optional              // a cluster may not have it, or not allow it
)

// answered records how the server answered a list or a watch.
func (t *tracker) answered(r *resourceState, err error) {
	if errors.Is(err, context.Canceled) {
		return // the agent is stopping
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

// silent records that the server should have answered by now. If a firewall drops
// packets, the connection fails only after half a minute.
func (t *tracker) silent() {
	t.mu.Lock()
	for _, r := range t.resources {
		if !r.connected && !r.optional && r.err == "" {
			r.err = fmt.Sprintf("no answer from the API server at %s yet; trying again", t.server)
		}
	}
	t.tellLocked()
}

// tellLocked delivers the current Problems if they have changed. It unlocks the
// mutex.
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
