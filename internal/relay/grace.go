package relay

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// ending is the wait for the last connections of a removed endpoint.
type ending struct{ timer *time.Timer }

// grace returns how long connections to a removed endpoint may continue: 0 ends
// them at once, a negative value never.
func (t *Target) grace() time.Duration {
	switch {
	case t.r.p.EndGone:
		return 0
	case t.f.Relay.EndpointGrace != 0:
		return t.f.Relay.EndpointGrace
	case t.r.p.EndpointGrace == 0:
		return -1
	}
	return t.r.p.EndpointGrace
}

// follow begins and ends waits as endpoints were removed and added. It returns the
// connections that are to end at once. t.mu is held, here and in leaving.
func (t *Target) follow() (now []*conn) {
	for at, e := range t.ending {
		if t.exists(at) || t.grace() < 0 {
			e.timer.Stop()
			delete(t.ending, at)
		}
	}
	for at := range t.conns {
		now = append(now, t.leaving(at)...)
	}
	return now
}

// leaving handles the connections of one endpoint, if that was removed. It returns those that are to end at once.
func (t *Target) leaving(at netip.AddrPort) (now []*conn) {
	grace := t.grace()
	if grace < 0 || t.exists(at) {
		return nil
	}
	if grace == 0 {
		return slices.Collect(maps.Keys(t.conns[at]))
	}
	if t.ending[at] == nil {
		e := &ending{}
		t.ending[at] = e
		e.timer = time.AfterFunc(grace, func() { t.over(at, e) })
	}
	return nil
}

// over ends the connections that are still open when the grace period is over.
func (t *Target) over(at netip.AddrPort, e *ending) {
	t.mu.Lock()
	var late []*conn
	if t.ending[at] == e { // else the endpoint was added again
		delete(t.ending, at)
		late = slices.Collect(maps.Keys(t.conns[at]))
	}
	t.mu.Unlock()
	endAll(late)
}

// endAll asks the workers to end connections whose endpoint was removed.
func endAll(list []*conn) {
	for _, c := range list {
		c.w.ask(c)
	}
}

// enter and leave keep track of the connections.
func (t *Target) enter(c *conn) {
	t.mu.Lock()
	if t.conns[c.at] == nil {
		t.conns[c.at] = map[*conn]struct{}{}
	}
	t.conns[c.at][c] = struct{}{}
	gone := t.leaving(c.at) // it may have been removed while the connection was made
	t.mu.Unlock()
	endAll(gone)
}

func (t *Target) leave(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns[c.at], c)
	if len(t.conns[c.at]) > 0 {
		return
	}
	delete(t.conns, c.at)
	if e := t.ending[c.at]; e != nil {
		e.timer.Stop()
		delete(t.ending, c.at)
	}
}
