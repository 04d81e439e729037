package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// choice is which endpoints one port may use, in one family (features.md 3.3).
type choice struct {
	cluster []model.Backend // for policy Cluster
	local   []model.Backend // for policy Local
	any     bool            // some endpoint somewhere is ready, or serving while terminating
	note    string
}

// candidate is an endpoint joined with the port its slice gives it.
type candidate struct {
	ep   *model.Endpoint
	port uint16
}

func (in *Inputs) choose(p *model.ServicePort, fam model.Family) choice {
	var ch choice
	all := in.candidates(p, fam)
	topo := in.topology(all)
	ch.note = topo.note
	var ready, fallback, localReady, localFallback []candidate
	for _, c := range all {
		local := c.ep.Node != "" && c.ep.Node == in.Node.Name
		switch {
		case c.ep.Ready:
			ch.any = true
			if topo.allows(c.ep) {
				ready = append(ready, c)
			}
			if local {
				localReady = append(localReady, c)
			}
		case c.ep.Serving && c.ep.Terminating:
			ch.any = true
			fallback = append(fallback, c)
			if local {
				localFallback = append(localFallback, c)
			}
		}
	}
	// KEP-1669: endpoints that still serve while terminating are used only when
	// no ready one is left, in each list separately.
	if len(ready) == 0 {
		ready = fallback
	}
	if len(localReady) == 0 {
		localReady = localFallback
	}
	w := in.weights()
	ch.cluster = in.backends(ready, w)
	if in.Service.InternalLocal || in.Service.ExternalLocal {
		ch.local = in.backends(localReady, w)
	}
	return ch
}

// candidates joins a ServicePort with the slices by port name and protocol. The
// same address and port twice (two slices while the controller rebalances, or a
// pod that ends as its successor gets the address): the one that is not
// terminating counts, then the ready one.
func (in *Inputs) candidates(p *model.ServicePort, fam model.Family) []candidate {
	n := 0
	for _, sl := range in.Slices {
		n += len(sl.Endpoints)
	}
	out := make([]candidate, 0, n)
	for _, sl := range in.Slices {
		if sl.Family != fam || sl.Headless {
			continue
		}
		for i := range sl.Ports {
			if sl.Ports[i].Name != p.Name || sl.Ports[i].Protocol != p.Protocol || sl.Ports[i].Port == 0 {
				continue
			}
			for j := range sl.Endpoints {
				out = append(out, candidate{&sl.Endpoints[j], sl.Ports[i].Port})
			}
			break
		}
	}
	slices.SortStableFunc(out, compareCandidates)
	return slices.CompactFunc(out, func(a, b candidate) bool {
		return a.ep.Addr == b.ep.Addr && a.port == b.port
	})
}

func compareCandidates(a, b candidate) int {
	if c := a.ep.Addr.Compare(b.ep.Addr); c != 0 {
		return c
	}
	if c := cmp.Compare(a.port, b.port); c != 0 {
		return c
	}
	return rank(a.ep) - rank(b.ep)
}

func rank(e *model.Endpoint) int {
	switch {
	case e.Ready && !e.Terminating:
		return 0
	case !e.Terminating:
		return 1
	}
	return 2
}

func (in *Inputs) backends(list []candidate, weights map[string]uint16) []model.Backend {
	if len(list) == 0 {
		return nil
	}
	out := make([]model.Backend, 0, len(list))
	for _, c := range list {
		b := model.Backend{Addr: c.ep.Addr, Port: c.port, Weight: 1,
			Local: c.ep.Node != "" && c.ep.Node == in.Node.Name}
		if weights != nil {
			w, ok := weights[c.ep.Addr.String()]
			if !ok && c.ep.Hostname != "" {
				w, ok = weights[c.ep.Hostname]
			}
			if ok && w == 0 {
				continue // asked to get nothing
			}
			if ok {
				b.Weight = w
			}
		}
		out = append(out, b)
	}
	if len(out) == 0 { // every endpoint has weight 0: serving beats the wish
		return in.backends(list, nil)
	}
	return out
}

// topo is the decision whether and how hints limit the endpoints (features.md 3.3).
type topo struct {
	byNode, byZone string
	note           string
}

func (t topo) allows(e *model.Endpoint) bool {
	switch {
	case t.byNode != "":
		return e.Hints != nil && slices.Contains(e.Hints.Nodes, t.byNode)
	case t.byZone != "":
		return e.Hints != nil && slices.Contains(e.Hints.Zones, t.byZone)
	}
	return true
}

// topology: node hints count if every ready endpoint has one and one of them
// names this node; else zone hints by the same rule (KEP-2433, KEP-3015). One
// endpoint without a hint turns the kind off; the note says which (#103888).
func (in *Inputs) topology(all []candidate) topo {
	nodes := hintCheck{want: in.Node.Name}
	zones := hintCheck{want: in.Node.Zone}
	for _, c := range all {
		if !c.ep.Ready {
			continue
		}
		h := c.ep.Hints
		if h == nil {
			h = &model.Hints{}
		}
		nodes.see(c.ep, h.Nodes)
		zones.see(c.ep, h.Zones)
	}
	if nodes.usable() {
		return topo{byNode: in.Node.Name, note: "node hints name this node"}
	}
	if zones.usable() {
		return topo{byZone: in.Node.Zone, note: fmt.Sprintf("zone hints name this node's zone %q", in.Node.Zone)}
	}
	switch {
	case zones.some > 0:
		return topo{note: "zone hints not used: " + zones.why("zone")}
	case nodes.some > 0:
		return topo{note: "node hints not used: " + nodes.why("node")}
	}
	return topo{}
}

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

func (h *hintCheck) usable() bool { return h.some > 0 && h.missing == nil && h.named && h.want != "" }

func (h *hintCheck) why(what string) string {
	switch {
	case h.missing != nil:
		return fmt.Sprintf("endpoint %s has no %s hint", h.missing.Addr, what)
	case h.want == "":
		return "this node's " + what + " is unknown"
	}
	return fmt.Sprintf("no endpoint is hinted for %s %q", what, h.want)
}

func readyLocal(in Inputs) int {
	seen := map[string]struct{}{}
	for _, sl := range in.Slices {
		for i := range sl.Endpoints {
			e := &sl.Endpoints[i]
			if e.Ready && e.Node != "" && e.Node == in.Node.Name {
				seen[e.Addr.String()] = struct{}{}
			}
		}
	}
	return len(seen)
}
