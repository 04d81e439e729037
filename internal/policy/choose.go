package policy

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// MaxBackends is how many endpoints a list of a Frontend may have, in the order of their
// addresses; further ones get no connections, and a Problem reports how many they are.
// A HashTable has indexes of 16 bits.
const MaxBackends = 1 << 16

// choice is which endpoints one port may use, in one family (contract.md 3). All lists are
// sorted by address, then port. The Frontends of the port share them.
type choice struct {
	cluster []model.Backend // for policy Cluster
	local   []model.Backend // for policy Local
	others  []model.Other   // exist, but are in neither list
	// The same for a Frontend that uses one list only.
	notCluster, notLocal []model.Other
	any                  bool // some endpoint somewhere is ready, or serving while terminating
	cut                  int  // number of endpoints over the limit of a list; usually 0
	notes                []Note

	clusterTable, localTable model.HashTable // of consistent hash
}

// candidate is an endpoint joined with its port in its slice.
type candidate struct {
	ep     *model.Endpoint
	v4     uint32 // its address, if that is IPv4; 0: read ep
	nth    uint32 // its position in the slices
	port   uint16
	traits traits
}

// traits of a candidate, as a set of bits.
type traits uint8

const (
	isReady    traits = 1 << iota
	isDraining        // not ready, but serving while terminating (KEP-1669)
	isHere            // on this node
	isNear            // ready, and the topology hints allow it from here
	isHinted          // has topology hints
	inCluster         // in the list for policy Cluster
	inLocal           // in the list for policy Local
)

// choose selects the usable endpoints of one port in one family. The cluster list holds the ready endpoints that the topology
// hints allow, else the terminating ones that still serve (KEP-1669). The local list holds the same of this node only, without
// regard to hints; whether it uses terminating endpoints does not depend on other nodes. A list is empty if no client may use it.
func (in *Inputs) choose(p *servicePort) choice {
	var ch choice
	all := in.candidates(&portFinder{p.ServicePort, p.nth, p.family})
	if len(all) == 0 {
		ch.note(NoEndpoints, in.whyNone(p))
		return ch
	}
	defer in.scratch.release()
	var seen traits
	for i := range all {
		seen |= all[i].traits
	}
	ch.any = seen&(isReady|isDraining) != 0
	why := unused{weights: in.weights()}
	if in.usesCluster(p.ServicePort) {
		want := isDraining
		if seen&isReady != 0 {
			want = isReady
		}
		if seen&isHinted != 0 {
			topo := in.topology(all)
			ch.note(topo.kind, topo.note)
			if want = isDraining; topo.keepNear(all) {
				want, why.near = isNear, true
			}
		}
		ch.cluster = ch.backends(all, want, inCluster, why.weights)
	}
	if in.Service.InternalLocal || in.Service.ExternalLocal {
		want := isReady | isHere
		if !slices.ContainsFunc(all, func(c candidate) bool { return c.has(want) }) {
			want = isDraining | isHere // in each list separately
		}
		ch.local = ch.backends(all, want, inLocal, why.weights)
	}
	ch.others = why.others(all, inCluster|inLocal)
	ch.notCluster, ch.notLocal = ch.others, ch.others
	if len(ch.local) > 0 {
		ch.notCluster = why.others(all, inCluster)
	}
	if in.Service.InternalLocal && len(ch.cluster) > 0 {
		ch.notLocal = why.others(all, inLocal)
	}
	ch.explain(in.Service, all, seen)
	return ch
}

// keepNear marks the ready candidates that the hints allow, and reports whether there
// are any.
func (t *topo) keepNear(all []candidate) (some bool) {
	for i := range all {
		if all[i].has(isReady) && t.allows(all[i].ep) {
			all[i].traits |= isNear
			some = true
		}
	}
	return some
}

func (c *candidate) has(want traits) bool { return c.traits&want == want }

// traits returns the traits that do not depend on other endpoints.
func (in *Inputs) traits(e *model.Endpoint) (t traits) {
	switch {
	case e.Ready:
		t = isReady
	case e.Serving && e.Terminating:
		t = isDraining
	}
	if in.isHere(e) {
		t |= isHere
	}
	if e.Hints != nil {
		t |= isHinted
	}
	return t
}

// isHere reports whether an endpoint is on this node. An endpoint without a node name is not.
func (in *Inputs) isHere(e *model.Endpoint) bool { return e.Node != "" && e.Node == in.Node.Name }

// usesCluster reports whether any client may use the cluster list. Under internal
// policy Local only external traffic does.
func (in *Inputs) usesCluster(p *model.ServicePort) bool {
	s := in.Service
	return !s.InternalLocal || p.NodePort != 0 || len(s.ExternalIPs) > 0 || len(s.LoadBalancerIPs) > 0
}

// candidates joins a ServicePort with the slices by port name and protocol. The result
// is sorted, and valid until in.scratch is released. An address and port may be there twice,
// in two slices while the controller rebalances, or as a pod that ends while its
// successor has the address already. Then the one that is not terminating counts, else
// the ready one, else the one that serves (rank).
func (in *Inputs) candidates(p *portFinder) []candidate {
	n := 0
	for _, sl := range in.Slices {
		if p.in(sl) != 0 {
			n += len(sl.Endpoints)
		}
	}
	if n == 0 {
		return nil
	}
	s := in.scratch
	s.list = resized(s.list, n)
	out := s.list[:0]
	for _, sl := range in.Slices {
		port := p.in(sl)
		if port == 0 {
			continue
		}
		for j := range sl.Endpoints {
			e := &sl.Endpoints[j]
			out = append(out, candidate{ep: e, v4: v4Of(e.Addr), nth: uint32(len(out)), port: port, traits: in.traits(e)})
		}
	}
	out, twice := s.sorted(out)
	if !twice {
		return out
	}
	return eachOnce(out)
}

// eachOnce returns the first of the candidates that have the same address and port.
func eachOnce(sorted []candidate) []candidate {
	kept := 0
	for i := range sorted {
		c, last := &sorted[i], &sorted[max(kept-1, 0)]
		if kept > 0 && c.port == last.port && c.v4 == last.v4 && c.ep.Addr == last.ep.Addr {
			continue
		}
		if kept++; kept-1 != i {
			sorted[kept-1] = *c
		}
	}
	return sorted[:kept]
}

// addr returns the endpoint's address. The endpoints of a large Service are megabytes:
// reading each of them again for it would cost more than all other steps.
func (c *candidate) addr() netip.Addr {
	if c.v4 == 0 {
		return c.ep.Addr
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], c.v4)
	return netip.AddrFrom4(b)
}

// v4Of returns an IPv4 address as a number; 0 for others and for 0.0.0.0.
func v4Of(a netip.Addr) uint32 {
	if !a.Is4() {
		return 0
	}
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

// compareCandidates orders by address, port, rank, and then position in the slices.
func compareCandidates(a, b candidate) int {
	if c := a.ep.Addr.Compare(b.ep.Addr); c != 0 {
		return c
	}
	if c := cmp.Compare(a.port, b.port); c != 0 {
		return c
	}
	if c := rank(a.ep) - rank(b.ep); c != 0 {
		return c
	}
	return cmp.Compare(a.nth, b.nth)
}

// rank returns the precedence of an endpoint among those of one address and port; the lowest is used.
func rank(e *model.Endpoint) int {
	switch {
	case e.Ready && !e.Terminating:
		return 0
	case !e.Terminating:
		return 1
	case e.Ready || e.Serving: // of two terminating ones, the one that may still be used
		return 2
	}
	return 3
}

// backends returns the candidates that have all wanted traits and a weight other than 0, and adds mark to their traits. If
// every weight is 0 it ignores the weights. It counts the candidates beyond MaxBackends in ch.cut.
func (ch *choice) backends(all []candidate, want, mark traits, weights map[string]uint16) []model.Backend {
	n := 0
	for i := range all {
		if all[i].has(want) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	out := make([]model.Backend, 0, min(n, MaxBackends))
	for i := range all {
		c := &all[i]
		if !c.has(want) {
			continue
		}
		weight := weightOf(c.ep, weights)
		if weight == 0 { // must receive no traffic
			continue
		}
		if len(out) == MaxBackends {
			ch.cut++
			continue
		}
		c.traits |= mark
		out = append(out, model.Backend{Addr: c.addr(), Port: c.port, Weight: weight, Local: c.has(isHere)})
	}
	if len(out) == 0 { // every endpoint has weight 0: serving takes precedence over the weights
		ch.note(WeightsIgnored, "weights not used: every usable endpoint has weight 0")
		return ch.backends(all, want, mark, nil)
	}
	return out
}

// weightOf returns the weight of an endpoint, by its address, else by its hostname; 1 if there is none.
func weightOf(e *model.Endpoint, weights map[string]uint16) uint16 {
	if weights == nil {
		return 1
	}
	w, ok := weights[e.Addr.String()]
	if !ok && e.Hostname != "" {
		w, ok = weights[e.Hostname]
	}
	if !ok {
		return 1
	}
	return w
}

// readyLocal counts the ready endpoints on this node for the health check node
// port, by address: two ports of one pod are one endpoint. A pod of two families
// has an endpoint in each; the family with more counts. (kube-proxy has one socket and
// one answer for each family, Fairlead one answer for both.)
func readyLocal(in *Inputs) int {
	seen := map[netip.Addr]struct{}{}
	var v4, v6 int
	for _, sl := range in.Slices {
		if sl.Headless || !servesFamily(in.Service, sl.Family) {
			continue
		}
		for i := range sl.Endpoints {
			e := &sl.Endpoints[i]
			if _, dup := seen[e.Addr]; dup || !e.Ready || !in.isHere(e) {
				continue
			}
			seen[e.Addr] = struct{}{}
			if sl.Family == model.IPv4 {
				v4++
			} else {
				v6++
			}
		}
	}
	return max(v4, v6)
}
