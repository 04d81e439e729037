package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/model"
)

// portRange is a range of ports that a ServicePort serves besides its own; the
// zero value is none.
type portRange struct{ first, last uint16 }

// portRanges reads fairlead.dev/port-range, "8000-8999" or "rtp=10000-19999,...":
// one range for each of spec.ports, nil if there is none. A range without a name
// is for the first port of each protocol. The source has checked the form; of
// each protocol the first range counts (see Claims), the others are told.
func portRanges(svc *model.Service) ([]portRange, []model.Problem) {
	if svc.Extras.PortRange == "" {
		return nil, nil
	}
	r := rangeReader{svc: svc, out: make([]portRange, len(svc.Ports))}
	for _, item := range strings.Split(svc.Extras.PortRange, ",") {
		r.item(item)
	}
	if svc.AffinityTimeout > 0 {
		r.complain("session affinity has no memory for a range: clients are spread over it by a hash of their address")
	}
	return r.out, r.problems
}

type rangeReader struct {
	svc      *model.Service
	out      []portRange
	problems []model.Problem
}

func (r *rangeReader) complain(format string, args ...any) {
	r.problems = append(r.problems, model.Problem{Object: "Service " + r.svc.Key.String(),
		Field: "metadata.annotations[fairlead.dev/port-range]", Reason: fmt.Sprintf(format, args...)})
}

func (r *rangeReader) item(item string) {
	name, ports, named := strings.Cut(item, "=")
	if !named {
		ports = item
	}
	at, ok := parseRange(ports)
	if !ok {
		return
	}
	found := false
	seen := map[model.Protocol]bool{}
	for i := range r.svc.Ports {
		p := &r.svc.Ports[i]
		if named && p.Name != name || !named && seen[p.Protocol] {
			continue
		}
		found, seen[p.Protocol] = true, true
		if r.taken(p.Protocol) {
			r.complain("%s: %s has a range already: an address has one for each protocol", item, p.Protocol)
			continue
		}
		r.out[i] = at
	}
	if !found {
		r.complain("%s: spec.ports has no port of that name", item)
	}
}

func (r *rangeReader) taken(p model.Protocol) bool {
	for i := range r.out {
		if r.svc.Ports[i].Protocol == p && r.out[i].last != 0 {
			return true
		}
	}
	return false
}

func parseRange(s string) (portRange, bool) {
	first, last, _ := strings.Cut(s, "-")
	lo, errLo := strconv.ParseUint(first, 10, 16)
	hi, errHi := strconv.ParseUint(last, 10, 16)
	return portRange{uint16(lo), uint16(hi)}, errLo == nil && errHi == nil && lo > 0 && lo <= hi
}

// ofRange gives the choice as a range has it: the port of an endpoint is the one
// that the client asked for, so addresses count alone.
func (ch *choice) ofRange() choice {
	out := choice{any: ch.any, cluster: anyPort(ch.cluster), local: anyPort(ch.local)}
	for _, o := range ch.others {
		o.Addr = netip.AddrPortFrom(o.Addr.Addr(), 0)
		out.others = append(out.others, o)
	}
	out.others = slices.CompactFunc(out.others, func(a, b model.Other) bool { return a.Addr == b.Addr })
	return out
}

// anyPort drops ports; the list is sorted by address, so what is then the same
// lies side by side.
func anyPort(list []model.Backend) []model.Backend {
	out := slices.Clone(list)
	for i := range out {
		out[i].Port = 0
	}
	return slices.CompactFunc(out, func(a, b model.Backend) bool { return a.Addr == b.Addr })
}
