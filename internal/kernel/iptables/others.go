package iptables

import "context"

// mark returns the present Mark of the ledger.
func (n *nftables) mark(ctx context.Context) (Mark, error) {
	n.turn.RLock() // a Restore in progress is not in the ledger yet
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

// listen starts listening to other programs' commits. If it fails, each such commit causes a complete read.
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

// aside stops listening for the duration of a Restore, because the kernel would send a message
// per rule. The generation reveals another program's commit in that time. It returns the function that resumes listening.
func (n *nftables) aside(ctx context.Context) (over func()) {
	n.hearing.Lock()
	defer n.hearing.Unlock()
	if !n.others.Listening() {
		return func() {}
	}
	_, _ = n.others.Hear(ctx, n.ledger.heard) // the generation reveals commits that were missed here
	n.others.Stop()
	return func() {
		n.hearing.Lock()
		defer n.hearing.Unlock()
		_, _ = n.listen(ctx) // if it fails, the next read retries
	}
}
