package property

import (
	"testing"

	"golang.org/x/sys/unix"
)

// relayed goes on where a proxy on the node answers by itself, and gives what becomes of a connection's first packet there. A client that
// was let in says that it has heard it; what the proxy then sends to an endpoint is waited for, or to the client, and the client ends it all.
// A datagram is waited for if it ought to go on, and each carries a number, so that one that ought not is noticed later.
func (w *wires) relayed(t *testing.T, s segment, seen []segment, forwarded bool) []segment {
	t.Helper()
	switch {
	case s.protocol == unix.IPPROTO_UDP && forwarded && len(seen) == 0:
		seen, _ = w.until(func(p segment) bool { return p.number == s.number })
	case len(seen) == 1 && seen[0].flags == syn|ack && seen[0].from == s.to && seen[0].to == s.from:
		w.remember(seen)
		s.flags, s.seq, s.ack = ack, 1, seen[0].seq+1
		w.write(t, s)
		seen, _ = w.until(func(segment) bool { return true })
		s.flags = rst
		w.write(t, s)
		for i := range seen {
			seen[i].refusal = false // the client was let in before
		}
	}
	for _, p := range seen {
		if p.number != s.number && p.protocol == unix.IPPROTO_UDP {
			t.Errorf("datagram %d went on after its time: %+v", p.number, p)
		}
	}
	w.remember(seen)
	return seen
}

// remember has packets of TCP passed over from now on: a proxy sends them once more where it has waited for a second.
func (w *wires) remember(seen []segment) {
	if w.known == nil {
		w.known = map[segment]bool{}
	}
	for _, p := range seen {
		if p.protocol == unix.IPPROTO_TCP {
			w.known[p] = true
		}
	}
}
