package app

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane/ipvs"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// A Service that has become empty is said so once, after a minute; one that was empty when the agent started, or that got an
// endpoint within the minute, is not. It is said again when it becomes empty again.
func TestEmptyServicesAreToldOnce(t *testing.T) {
	var said []string
	s := newServiceEvents(func(svc model.ServiceKey, reason, _ string) { said = append(said, reason+" "+svc.Name) }, nil)
	now := time.Unix(1000, 0)
	put := func(complete bool, name string, backends int, notes ...policy.Note) {
		res := policy.Result{Frontends: []model.Frontend{{Backends: make([]model.Backend, backends)}}, Notes: notes}
		s.decided([]engine.Decided{{Key: model.ServiceKey{Namespace: "a", Name: name}, Result: res}}, complete, now)
	}
	none, unready := policy.Note{Kind: policy.NoEndpoints, Text: "no pod"}, policy.Note{Kind: policy.NotReady, Text: "not ready"}
	steps := []struct {
		after time.Duration
		do    func()
		want  []string
	}{
		{0, func() { put(false, "old", 0, none) }, nil},
		{time.Second, func() { put(true, "well", 1) }, nil},
		{time.Second, func() { put(true, "new", 0, none); put(true, "brief", 0, none) }, nil},
		{0, func() { put(true, "elsewhere", 0, policy.Note{Kind: policy.NoneHere}); put(true, "one-port", 1, none) }, nil},
		{emptyFor - time.Second, func() { put(true, "brief", 1); put(true, "well", 0, unready) }, nil},
		{time.Second, func() {}, []string{"NoEndpoints new"}},
		{emptyFor, func() { put(true, "new", 0, unready) }, []string{"NoEndpoints well"}},
		{emptyFor, func() { put(true, "well", 1) }, nil},
		{time.Second, func() { put(true, "well", 0, none) }, nil},
		{emptyFor, func() {}, []string{"NoEndpoints well"}},
		{0, func() { s.decided([]engine.Decided{{Key: model.ServiceKey{Namespace: "a", Name: "well"}}}, true, now) }, nil},
	}
	for i, step := range steps {
		now, said = now.Add(step.after), nil
		step.do()
		s.look(now)
		if !slices.Equal(said, step.want) {
			t.Errorf("step %d: said %v, want %v", i, said, step.want)
		}
	}
	if len(s.empty) != 2 {
		t.Errorf("kept, of old and new: %v", s.empty)
	}
}

// askedFor are requests that a test decides.
type askedFor struct {
	at    map[string]time.Time
	reads int
}

func (a *askedFor) readRefusals() { a.reads++ }

func (a *askedFor) refusedAt(svc model.ServiceKey) time.Time { return a.at[svc.Name] }

// Where requests are counted, an empty Service is said by a node on which a client has asked for it since it became empty: also one
// that was empty when the agent started. The kernel is read once a minute, and only while there is such a Service.
func TestEmptyServicesAreToldWhenAskedFor(t *testing.T) {
	now := time.Unix(1000, 0)
	var said []string
	s := newServiceEvents(func(svc model.ServiceKey, _, _ string) { t.Errorf("%v is said for all nodes", svc) }, nil)
	asked := &askedFor{at: map[string]time.Time{"early": now.Add(-time.Second), "old": now.Add(time.Second)}}
	s.requests, s.here = asked, func(svc model.ServiceKey, reason, _ string) { said = append(said, reason+" "+svc.Name) }
	put := func(complete bool, name string, backends int) {
		res := policy.Result{Frontends: []model.Frontend{{Backends: make([]model.Backend, backends)}}, Notes: []policy.Note{{Kind: policy.NoEndpoints, Text: "no pod"}}}
		s.decided([]engine.Decided{{Key: model.ServiceKey{Namespace: "a", Name: name}, Result: res}}, complete, now)
	}
	put(false, "old", 0)
	put(true, "never", 0)
	put(true, "early", 0)
	put(true, "late", 0)
	steps := []struct {
		after time.Duration
		do    func()
		want  []string
		reads int
	}{
		{emptyFor - time.Second, nil, nil, 0},
		{time.Second, nil, []string{"NoEndpoints old"}, 1},
		{emptyLook, func() { asked.at["late"] = now }, nil, 1},
		{requestsLook - emptyLook, nil, []string{"NoEndpoints late"}, 2},
		{requestsLook, func() { put(true, "never", 1); put(true, "early", 1); asked.at["late"] = now }, nil, 2},
	}
	for i, step := range steps {
		now, said = now.Add(step.after), nil
		if step.do != nil {
			step.do()
		}
		s.look(now)
		if !slices.Equal(said, step.want) || asked.reads != step.reads {
			t.Errorf("step %d: said %v after %d reads, want %v after %d", i, said, asked.reads, step.want, step.reads)
		}
	}
}

// A lost claim is said at once, also at the start, and again only when it is another.
func TestLostClaimsAreTold(t *testing.T) {
	var said []string
	s := newServiceEvents(func(_ model.ServiceKey, reason, message string) { said = append(said, reason+" "+message) }, nil)
	put := func(notes ...policy.Note) {
		s.decided([]engine.Decided{{Key: model.ServiceKey{Namespace: "a", Name: "b"}, Result: policy.Result{Notes: notes}}}, true, time.Unix(1000, 0))
	}
	lost := func(n int) policy.Note { return policy.Note{Kind: policy.ClaimLost, Text: fmt.Sprint("address ", n)} }
	put(lost(1))
	put(lost(1))
	put(lost(2))
	put()
	put(policy.Note{Kind: policy.HintsIgnored}, lost(2))
	want := []string{"AddressClaimed address 1", "AddressClaimed address 2", "AddressClaimed address 2"}
	if !slices.Equal(said, want) {
		t.Errorf("said %v, want %v", said, want)
	}
	put()
	if len(s.claimed) != 0 {
		t.Errorf("kept: %v", s.claimed)
	}
}

// What this mode does not serve of a Service is said once, and again when it is something else.
func TestWhatIsNotServedIsTold(t *testing.T) {
	var said []string
	s := newServiceEvents(func(_ model.ServiceKey, reason, message string) { said = append(said, reason+" "+message) }, nil)
	put := func(last ...uint16) {
		res := policy.Result{Frontends: []model.Frontend{{Key: model.FrontendKey{Family: model.IPv4, Protocol: model.TCP, Port: 80}, Kind: model.NodePort}}}
		for _, n := range last {
			res.Frontends = append(res.Frontends, model.Frontend{Key: model.FrontendKey{Family: model.IPv4, Protocol: model.TCP, Addr: netip.MustParseAddr("10.96.0.10"), Port: 70, LastPort: n}})
		}
		s.decided([]engine.Decided{{Key: model.ServiceKey{Namespace: "a", Name: "b"}, Result: res}}, true, time.Unix(1000, 0))
	}
	put(90) // a mode that serves everything
	s.unsupported = ipvs.Unsupported
	put()
	put(90, 95)
	put(90)
	put(99)
	put()
	why := "/TCP is not served: " + ipvs.Unsupported(&model.Frontend{Key: model.FrontendKey{LastPort: 1}})
	if want := []string{"NotServed 10.96.0.10:70-90" + why, "NotServed 10.96.0.10:70-99" + why}; !slices.Equal(said, want) {
		t.Errorf("said %v, want %v", said, want)
	}
	if len(s.lacking) != 0 {
		t.Errorf("kept: %v", s.lacking)
	}
}
