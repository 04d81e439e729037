package iptables

import "context"

// mark returns the present moment of the ledger.
func (n *nftables) mark(ctx context.Context) (Mark, error) {
	n.turn.RLock() // a Restore that is under way has not been noted
	defer n.turn.RUnlock()
	n.hearing.Lock()
	defer n.hearing.Unlock()
	if n.others.Listening() {
		if now, err := n.others.Hear(ctx, n.ledger.heard); err == nil {
			return n.ledger.heardTo(now), nil
		}
	}
	return n.listen(ctx)
}

// listen has the commits of others heard from now on. Without that each makes all be read.
func (n *nftables) listen(ctx context.Context) (Mark, error) {
	now, err := n.others.Listen(ctx)
	if err != nil {
		s, err := n.stamp()
		if err != nil {
			return 0, err
		}
		now = s.Generation
	}
	return n.ledger.at(now), nil
}

// aside hears nobody for the time of a Restore, for which the kernel would else tell each
// rule. A commit of somebody else's that comes then shows in the generation. It gives what ends that.
func (n *nftables) aside(ctx context.Context) (over func()) {
	n.hearing.Lock()
	defer n.hearing.Unlock()
	if !n.others.Listening() {
		return func() {}
	}
	_, _ = n.others.Hear(ctx, n.ledger.heard) // what is not heard shows in the generation too
	n.others.Stop()
	return func() {
		n.hearing.Lock()
		defer n.hearing.Unlock()
		_, _ = n.listen(ctx) // or the next reading does
	}
}
