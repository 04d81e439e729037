package policy

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// topo is the decision whether and how hints limit the endpoints (contract.md 3).
type topo struct {
	byNode, byZone string
	note           string
	kind           NoteKind
}

// allows reports whether an endpoint may be used. Without usable hints every endpoint may.
func (t topo) allows(e *model.Endpoint) bool {
	switch {
	case t.byNode != "":
		return e.Hints != nil && slices.Contains(e.Hints.Nodes, t.byNode)
	case t.byZone != "":
		return e.Hints != nil && slices.Contains(e.Hints.Zones, t.byZone)
	}
	return true
}

// topology returns whether hints limit the endpoints. Node hints are used if every ready
// endpoint has one and one of them names this node; else zone hints by the same rule
// (KEP-2433, KEP-3015). One endpoint without a hint disables that kind of hint; the note
// reports which (#103888).
func (in *Inputs) topology(all []candidate) topo {
	nodes := hintCheck{want: in.Node.Name}
	zones := hintCheck{want: in.Node.Zone}
	for i := range all {
		e := all[i].ep
		if !e.Ready {
			continue
		}
		if e.Hints == nil {
			nodes.see(e, nil)
			zones.see(e, nil)
			continue
		}
		nodes.see(e, e.Hints.Nodes)
		zones.see(e, e.Hints.Zones)
	}
	if nodes.usable() {
		return topo{byNode: in.Node.Name, kind: HintsUsed, note: "node hints name this node"}
	}
	if zones.usable() {
		return topo{byZone: in.Node.Zone, kind: HintsUsed, note: fmt.Sprintf("zone hints name this node's zone %q", in.Node.Zone)}
	}
	switch {
	case zones.some > 0:
		return topo{kind: HintsIgnored, note: "zone hints not used: " + zones.why("zone")}
	case nodes.some > 0:
		return topo{kind: HintsIgnored, note: "node hints not used: " + nodes.why("node")}
	}
	return topo{}
}

// hintCheck collects the hints of one kind, node or zone, of the ready endpoints.
type hintCheck struct {
	want    string
	some    int             // endpoints with a hint
	missing *model.Endpoint // the first without
	named   bool            // some hint names want
}

func (h *hintCheck) see(e *model.Endpoint, hints []string) {
	if len(hints) == 0 {
		if h.missing == nil {
			h.missing = e
		}
		return
	}
	h.some++
	h.named = h.named || slices.Contains(hints, h.want)
}

// usable reports whether hints of this kind can be followed on this node.
func (h *hintCheck) usable() bool { return h.some > 0 && h.missing == nil && h.named && h.want != "" }

// why returns the reason why hints of this kind cannot be followed.
func (h *hintCheck) why(what string) string {
	switch {
	case h.missing != nil:
		return fmt.Sprintf("endpoint %s has no %s hint", h.missing.Addr, what)
	case h.want == "":
		return "this node's " + what + " is unknown"
	}
	return fmt.Sprintf("no endpoint is hinted for %s %q", what, h.want)
}
