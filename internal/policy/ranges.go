package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/model"
)

// portRange is a range of ports that a ServicePort serves in addition to its own; the
// zero value is none.
type portRange struct{ first, last uint16 }

// portRanges reads fairlead.dev/port-range, "8000-8999" or "rtp=10000-19999,...": one
// range for each of spec.ports, nil if there is none. A range without a name is for the
// first port of each protocol. The source has checked the form. Of each protocol the
// first range is used (see Claims), and the others are reported.
func portRanges(svc *model.Service) ([]portRange, []model.Problem) {
	if svc.Extras.PortRange == "" {
		return nil, nil
	}
	r := rangeReader{svc: svc, out: make([]portRange, len(svc.Ports)), byName: map[string][]int{}}
	first := map[model.Protocol]bool{}
	for i := range svc.Ports {
		p := &svc.Ports[i]
		r.byName[p.Name] = append(r.byName[p.Name], i)
		if !first[p.Protocol] {
			first[p.Protocol] = true
			r.firsts = append(r.firsts, i)
		}
	}
	for _, item := range strings.Split(svc.Extras.PortRange, ",") {
		r.item(item)
	}
	if more := len(r.problems) - maxRangeProblems; more > 0 {
		r.problems = r.problems[:maxRangeProblems]
		r.complain("%d more problems of this annotation are not listed", more)
	}
	if svc.AffinityTimeout > 0 {
		r.complain("session affinity with a timeout does not support port ranges: clients are distributed by a hash of their address")
	}
	return r.out, r.problems
}

// maxRangeProblems is how many Problems are reported for one annotation.
const maxRangeProblems = 10

// rangeReader assigns ranges to the ports of a Service, item by item.
type rangeReader struct {
	svc      *model.Service
	byName   map[string][]int // places in spec.ports
	firsts   []int            // of each protocol
	out      []portRange
	taken    []model.Protocol // that have a range
	problems []model.Problem
}

func (r *rangeReader) complain(format string, args ...any) {
	r.problems = append(r.problems, model.Problem{Object: "Service " + r.svc.Key.String(),
		Field: "metadata.annotations[fairlead.dev/port-range]", Reason: fmt.Sprintf(format, args...)})
}

func (r *rangeReader) item(item string) {
	ports, places := item, r.firsts
	if name, rest, named := strings.Cut(item, "="); named {
		ports, places = rest, r.byName[name]
	}
	at, ok := parseRange(ports)
	if !ok {
		return
	}
	if len(places) == 0 {
		r.complain("%s: spec.ports has no port of that name", item)
	}
	for _, i := range places {
		p := r.svc.Ports[i].Protocol
		if slices.Contains(r.taken, p) {
			r.complain("%s: %s already has a range: an address can have one range for each protocol", item, p)
			continue
		}
		r.taken = append(r.taken, p)
		r.out[i] = at
	}
}

func parseRange(s string) (portRange, bool) {
	first, last, _ := strings.Cut(s, "-")
	lo, errLo := strconv.ParseUint(first, 10, 16)
	hi, errHi := strconv.ParseUint(last, 10, 16)
	return portRange{uint16(lo), uint16(hi)}, errLo == nil && errHi == nil && lo > 0 && lo <= hi
}

// portSet holds ports by number and protocol: few in a list, many in a map.
type portSet struct {
	few  [16]uint32
	n    int // of few
	many map[uint32]struct{}
}

// addAgain adds a port, and reports whether it was there.
func (s *portSet) addAgain(proto model.Protocol, port uint16) bool {
	key := uint32(proto)<<16 | uint32(port)
	if slices.Contains(s.few[:s.n], key) {
		return true
	}
	if s.n < len(s.few) {
		s.few[s.n] = key
		s.n++
		return false
	}
	if s.many == nil {
		s.many = map[uint32]struct{}{}
	}
	_, there := s.many[key]
	s.many[key] = struct{}{}
	return there
}

// hash makes the tables of consistent hash.
func (ch *choice) hash() { ch.clusterTable, ch.localTable = hashTable(ch.cluster), hashTable(ch.local) }

// ofRange returns the choice for a range: the port of an endpoint is the one that the
// client asked for, so only addresses matter.
func (ch *choice) ofRange() choice {
	out := choice{any: ch.any, cluster: anyPort(ch.cluster), local: anyPort(ch.local)}
	out.others, out.notCluster, out.notLocal = anyPorts(ch.others), anyPorts(ch.notCluster), anyPorts(ch.notLocal)
	return out
}

func anyPorts(list []model.Other) (out []model.Other) {
	for _, o := range list {
		o.Addr = netip.AddrPortFrom(o.Addr.Addr(), 0)
		out = append(out, o)
	}
	return slices.CompactFunc(out, func(a, b model.Other) bool { return a.Addr == b.Addr })
}

// anyPort drops ports. The list is sorted by address, so equal entries are adjacent
// afterwards.
func anyPort(list []model.Backend) []model.Backend {
	out := slices.Clone(list)
	for i := range out {
		out[i].Port = 0
	}
	return slices.CompactFunc(out, func(a, b model.Backend) bool { return a.Addr == b.Addr })
}
