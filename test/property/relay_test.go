package property

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/internal/model"
)

// relayed goes on where a proxy on the node answers by itself, and gives what becomes of a connection's first packet there. A client that
// was let in says that it has heard it, and what the proxy then sends to an endpoint counts. A datagram is waited for if it ought to go on,
// and each carries a number, so that one that ought not is noticed later.
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

// tries refuses what a proxy asks of endpoints until it refuses its client, so that nothing of the connection is left, and gives the first
// that it asked, or else what the client got.
func (w *wires) tries(t *testing.T, client netip.AddrPort, said *inspect.Trace) (first []segment) {
	t.Helper()
	for {
		seen, ok := w.until(func(segment) bool { return true })
		if !ok {
			t.Fatal("a client that was let in is neither served nor refused")
		}
		w.remember(seen)
		p := seen[0]
		p.refusal = false // the client was let in before
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
