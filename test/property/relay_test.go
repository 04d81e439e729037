package property

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/internal/model"
)

// relayed handles a proxy on the node that answers by itself, and returns the result of a connection's first packet. It acknowledges the answer of an
// accepted client; what counts is the packet that the proxy then sends to an endpoint. It waits for a datagram that should be forwarded. Each
// datagram carries a number, so that a forwarded one that should not be is detected later.
func (w *wires) relayed(t *testing.T, s segment, seen []segment, said *inspect.Trace) []segment {
	t.Helper()
	switch {
	case s.protocol == unix.IPPROTO_UDP && said.Outcome == model.Forward.String() && len(seen) == 0:
		seen, _ = w.until(func(p segment) bool { return p.number == s.number })
	case len(seen) == 1 && seen[0].flags == syn|ack && seen[0].from == s.to && seen[0].to == s.from:
		w.remember(seen)
		s.flags, s.seq, s.ack = ack, 1, seen[0].seq+1
		w.write(t, s)
		seen = w.tries(t, s.from, said)
	}
	for _, p := range seen {
		if p.number != s.number && p.protocol == unix.IPPROTO_UDP {
			t.Errorf("datagram %d went on after its time: %+v", p.number, p)
		}
	}
	w.remember(seen)
	return seen
}

// tries rejects the proxy's connections to endpoints until the proxy rejects its client, so that no state of the connection is left. It returns the
// first packet to an endpoint, or else the answer to the client.
func (w *wires) tries(t *testing.T, client netip.AddrPort, said *inspect.Trace) (first []segment) {
	t.Helper()
	for {
		seen, ok := w.until(func(segment) bool { return true })
		if !ok {
			t.Fatal("a client that was let in is neither served nor refused")
		}
		w.remember(seen)
		p := seen[0]
		p.refusal = false // the client was accepted before
		if len(first) == 0 {
			first = []segment{p}
		}
		if p.to == client {
			return first
		}
		if !slices.Contains(said.Targets, p.to.String()) {
			t.Errorf("the proxy asks %s, who was not named: %+v", p.to, said)
		}
		w.write(t, segment{protocol: p.protocol, from: p.to, to: p.from, flags: rst | ack, ack: p.seq + 1})
	}
}

// remember makes later reads ignore these TCP packets: a proxy retransmits them after a second without an answer.
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
