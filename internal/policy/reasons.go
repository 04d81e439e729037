package policy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// NoteKind sorts Notes, for counting.
type NoteKind uint8

// The kinds of Notes. All but HintsUsed report that something may differ from what the
// user expects.
const (
	HintsUsed        NoteKind = iota + 1
	HintsIgnored              // topology hints exist, and cannot be followed
	NoEndpoints               // no endpoint of the port is known
	NotReady                  // there are endpoints, and none of them may be used
	NoneHere                  // a Local policy holds, and all usable endpoints are elsewhere
	OnlyEnding                // only endpoints that are terminating are left, and used
	WeightsIgnored            // every weight is 0
	ClaimLost                 // an address or port belongs to another Service
	ExternalIPOfNode          // an external IP is an address of this node
	NumNoteKinds     = iota
)

// String returns the spelling of the metric fairlead_services_noted.
func (k NoteKind) String() string {
	return [...]string{"", "hints_used", "hints_ignored", "no_endpoints", "none_ready", "none_local", "only_terminating", "weights_ignored", "claim_lost", "external_ip_of_node"}[k]
}

// Note explains one port's choice of endpoints in one family, in one line.
type Note struct {
	Kind   NoteKind
	Port   string
	Family model.Family // 0: both
	Text   string
}

// note keeps one line, each once.
func (ch *choice) note(kind NoteKind, text string) {
	n := Note{Kind: kind, Text: text}
	if kind != 0 && !slices.Contains(ch.notes, n) {
		ch.notes = append(ch.notes, n)
	}
}

// explain adds Notes about a choice: no usable endpoint, only terminating ones, or none on this node.
func (ch *choice) explain(svc *model.Service, all []candidate, seen traits) {
	switch {
	case !ch.any && len(all) == 1:
		ch.note(NotReady, "the only endpoint is "+whyUseless(all[0].ep).String())
	case !ch.any:
		ch.note(NotReady, fmt.Sprintf("none of %d endpoints is ready", len(all)))
	case seen&isReady == 0:
		ch.note(OnlyEnding, "no endpoint is ready: terminating endpoints that still serve are used")
	}
	if ch.any && len(ch.local) == 0 && (svc.InternalLocal || svc.ExternalLocal) {
		ch.note(NoneHere, localPolicy(svc)+" is Local, and no usable endpoint is on this node")
	}
}

func localPolicy(svc *model.Service) string {
	switch {
	case !svc.ExternalLocal:
		return "internalTrafficPolicy"
	case !svc.InternalLocal:
		return "externalTrafficPolicy"
	}
	return "internalTrafficPolicy and externalTrafficPolicy"
}

// whyNone returns the reason why a port has no endpoint at all in a family.
func (in *Inputs) whyNone(p *servicePort) string {
	find := portFinder{p.ServicePort, p.nth, p.family}
	var slicesHere, endpoints, named int
	for _, sl := range in.Slices {
		if sl.Headless || sl.Family != p.family {
			continue
		}
		slicesHere++
		endpoints += len(sl.Endpoints)
		if find.in(sl) != 0 {
			named++
		}
	}
	switch {
	case slicesHere == 0 && len(in.Slices) > 0:
		return fmt.Sprintf("no EndpointSlice of %s belongs to the Service", p.family)
	case slicesHere == 0:
		return "no EndpointSlice belongs to the Service: does it have a selector?"
	case endpoints == 0:
		return "its EndpointSlices are empty: no pod matches the selector"
	case named == 0:
		return fmt.Sprintf("no EndpointSlice has a port named %q of protocol %s: does every pod have the targetPort?", p.Name, p.Protocol)
	}
	return "the EndpointSlices with this port are empty"
}

// unused returns the reasons why candidates are not in some lists.
type unused struct {
	weights map[string]uint16
	near    bool // the topology hints were followed
}

// others returns the candidates that are not in some lists; usually there are none.
func (u *unused) others(all []candidate, lists traits) (out []model.Other) {
	for i := range all {
		if c := &all[i]; c.traits&lists == 0 {
			out = append(out, model.Other{
				Addr: netip.AddrPortFrom(c.ep.Addr, c.port), Serving: c.ep.Serving || c.ep.Ready, Why: u.why(c, lists)})
		}
	}
	return out
}

// why returns the reason why a candidate is in none of the lists.
func (u *unused) why(c *candidate, lists traits) model.Unused {
	switch {
	case !c.has(isReady) && !c.has(isDraining):
		return whyUseless(c.ep)
	case !c.has(isReady):
		return model.Ending
	case weightOf(c.ep, u.weights) == 0:
		return model.NoWeight
	case lists == inLocal && !c.has(isHere):
		return model.Elsewhere
	case u.near && !c.has(isNear):
		return model.FarAway
	case !c.has(isHere):
		return model.Elsewhere
	}
	return model.TooMany
}

// whyUseless returns the reason why an endpoint can be used by no client on any node.
func whyUseless(e *model.Endpoint) model.Unused {
	if e.Terminating {
		return model.Ended
	}
	return model.NotReady
}
