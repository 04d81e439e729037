package relay

import (
	"errors"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// errLoop is the reason why a looping endpoint gets no client.
var errLoop = errors.New("the endpoint is a socket of this agent that forwards back to the same Service (a loop): correct the EndpointSlice's endpoints[].addresses")

// loopsAtOnce bounds how many endpoints are skipped for one client because they loop back.
const loopsAtOnce = 16

// place is where a Listener listens.
type place struct {
	at       netip.AddrPort
	protocol model.Protocol
}

func (l *Listener) place() place {
	if l.conn != nil {
		return place{l.at, model.UDP}
	}
	return place{l.at, model.TCP}
}

// choose returns an endpoint that does not loop back to the Listener's Target. Otherwise one
// client would open connections of this process to itself until the Service's share is used up.
func (l *Listener) choose(v *visit, now time.Time) (netip.AddrPort, bool) {
	for range loopsAtOnce {
		at, ok := l.t.pick(v, now)
		if !ok || !l.leadsBack(at) {
			return at, ok
		}
		v.failed = append(v.failed, at)
		l.t.r.loop(l.t.service(), at)
	}
	return netip.AddrPort{}, false
}

// leadsBack reports whether an endpoint is a socket of this Relay whose endpoints are the
// Listener's own Target, or reach it through further sockets. An endpoint that is another
// Service's socket and does not loop back is served.
func (l *Listener) leadsBack(endpoint netip.AddrPort) bool {
	r, seen := l.t.r, map[*Target]bool(nil)
	next := []netip.AddrPort{endpoint}
	for len(next) > 0 {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		found, own := r.own.Load(place{at, l.place().protocol})
		if !own {
			continue
		}
		t := found.(*Listener).t
		if t == l.t {
			return true
		}
		if seen[t] {
			continue
		}
		if seen == nil {
			seen = map[*Target]bool{}
		}
		seen[t] = true
		next = append(next, t.endpoints()...)
	}
	return false
}

// endpoints returns the endpoints that may get a client.
func (t *Target) endpoints() (out []netip.AddrPort) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, list := range [...][]model.Backend{t.pool.list, t.local.list} {
		for i := range list {
			out = append(out, list[i].AddrPort())
		}
	}
	return out
}

// loop counts and reports an endpoint that loops back.
func (r *Relay) loop(svc model.ServiceKey, at netip.AddrPort) {
	r.counts.loops.Add(1)
	if r.complain(svc, "endpoint "+at.String()+" is not used", errLoop) && r.p.OnLoop != nil {
		r.p.OnLoop(svc, at, errLoop)
	}
}
