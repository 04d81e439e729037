package ipvs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// ledger keeps account of the generations of nftables' rule set. Up to known all is accounted for: by commits
// of ours, by neighbours' that did nothing in our tables, or by a Load. The watcher's goroutine and the engine's
// both write it.
type ledger struct {
	mu    sync.Mutex
	known nft.Generation // 0: never looked
	// Each commit after since and up to heard was harmless, or ours; both 0: nobody listens.
	since, heard nft.Generation
	moved        chan struct{} // closed at the next news
}

// patience is how long the news of a commit may take to arrive; the alternative is to read everything again.
const patience = 250 * time.Millisecond

func (l *ledger) news() {
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

// note takes down one commit that changed nothing of ours that we do not know of.
func (l *ledger) note(g nft.Generation) {
	switch {
	case l.heard == 0 || !g.After(l.heard):
	case g == l.heard.Next():
		l.heard = g
	default:
		l.since, l.heard = g, g
	}
	if l.known != 0 && l.heard != 0 && !l.since.After(l.known) && l.heard.After(l.known) {
		l.known = l.heard
	}
	l.news()
}

// hear takes the watcher's news and tells whether it is one for the engine.
func (l *ledger) hear(m nft.Move, ours bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !m.Lost && !ours {
		l.note(m.Generation)
		return false
	}
	l.since, l.heard = m.Generation, m.Generation
	l.news()
	return m.Generation.After(l.known)
}

// unheard ends the news.
func (l *ledger) unheard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since, l.heard = 0, 0
	l.news()
}

// compared accounts for everything up to g.
func (l *ledger) compared(g nft.Generation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == 0 || g.After(l.known) {
		l.known = g
	}
	l.note(l.known)
}

// committed accounts for a commit of ours, which the kernel took because all before it was accounted for.
func (l *ledger) committed(g nft.Generation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.After(l.known) {
		l.known = g
	}
	l.note(g)
}

func (l *ledger) knows() nft.Generation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

// settled waits, while somebody listens, until everything up to g is accounted for.
func (l *ledger) settled(ctx context.Context, g nft.Generation) bool {
	return l.wait(ctx, func() bool { return !g.After(l.known) }, func() bool { return l.since.After(l.known) })
}

// quiet waits until each commit after from and up to to is accounted for.
func (l *ledger) quiet(ctx context.Context, from, to nft.Generation) bool {
	return l.wait(ctx, func() bool { return from == to || l.heard != 0 && !l.since.After(from) && !to.After(l.heard) },
		func() bool { return l.since.After(from) })
}

func (l *ledger) wait(ctx context.Context, good, hopeless func() bool) bool {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for over := false; ; {
		l.mu.Lock()
		if good() {
			l.mu.Unlock()
			return true
		}
		if over || l.heard == 0 || hopeless() {
			l.mu.Unlock()
			return false
		}
		if l.moved == nil {
			l.moved = make(chan struct{})
		}
		moved := l.moved
		l.mu.Unlock()
		select {
		case <-moved:
		case <-deadline.C:
			over = true
		case <-ctx.Done():
			return false
		}
	}
}

// Watch implements dataplane.Driver. IPVS and the device tell nobody of changes, so the engine is rung for
// them by the clock, and Changed compares.
func (d *Driver) Watch(ctx context.Context, changed func()) error {
	ctx, stop := context.WithCancel(ctx)
	audits := make(chan struct{})
	go func() {
		defer close(audits)
		d.audits(ctx, changed)
	}()
	defer func() {
		stop()
		<-audits
		d.seen.unheard()
	}()
	err := d.p.NFT.Watch(ctx, func(m nft.Move) {
		if d.seen.hear(m, slices.ContainsFunc(m.Tables, isOurs)) {
			changed()
		}
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("watch rule set: %w", err)
	}
	return nil
}

func isOurs(t nft.TableRef) bool { return t == tableRef(model.IPv4) || t == tableRef(model.IPv6) }

func (d *Driver) audits(ctx context.Context, changed func()) {
	if d.p.Audit <= 0 {
		return
	}
	tick := time.NewTicker(d.p.Audit)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			changed()
		}
	}
}

// Changed implements dataplane.Driver: of IPVS it reads everything, sums that up, and compares the sum.
func (d *Driver) Changed(ctx context.Context) (bool, error) {
	g, err := d.p.NFT.Generation(ctx)
	if err != nil {
		return false, err
	}
	if d.unsure || !d.seen.settled(ctx, g) {
		return true, nil
	}
	r := reader{d: d, families: d.families}
	if err := r.owned(ctx); err != nil {
		return false, err
	}
	if err := r.all(ctx); err != nil {
		return false, err
	}
	return r.sum != d.sum, nil
}
