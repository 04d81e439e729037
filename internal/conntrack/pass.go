package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/model"
)

// maxStale bounds what one round of a pass remembers; then it deletes and looks
// again. sweepChunk is how many deletions a sweep makes without a pause.
const (
	maxStale   = 50_000
	sweepChunk = 1_000
)

// pass looks at the suspects once and removes what is stale. After success there
// are no suspects left.
func (c *Cleaner) pass(ctx context.Context) Pass {
	start := time.Now()
	p := Pass{Sweep: c.suspects.all, Deleted: map[model.Family]int{}}
	for _, f := range c.filters() {
		if err := c.clean(ctx, f, &p); err != nil {
			p.Err = err
			break
		}
	}
	p.Took = time.Since(start)
	if p.Err != nil {
		return p
	}
	if p.Sweep {
		c.sweepAt = time.Now().Add(c.p.SweepEvery)
	}
	c.suspects = newSuspects()
	clear(c.ended)
	c.ranges.keep(c.known)
	return p
}

// clean removes the stale ones among the flows of one filter.
func (c *Cleaner) clean(ctx context.Context, f conntrack.Filter, p *Pass) error {
	for {
		var stale []conntrack.Flow
		p.Dumps++
		interrupted := c.p.Table.Flows(ctx, f, func(x conntrack.Flow) {
			if len(stale) < maxStale && c.stale(&x) {
				stale = append(stale, x)
			}
		})
		if interrupted != nil && !errors.Is(interrupted, conntrack.ErrInterrupted) {
			return interrupted
		}
		n, err := c.remove(ctx, stale, p.Sweep) // of a broken dump what came is still true
		if f.Family == conntrack.IPv4 {
			p.Deleted[model.IPv4] += n
		} else {
			p.Deleted[model.IPv6] += n
		}
		if err := errors.Join(interrupted, err); err != nil {
			return err
		}
		if len(stale) < maxStale || n == 0 {
			return nil
		}
	}
}

// remove deletes flows; a sweep takes its time, for nobody waits for it and every
// deletion takes a lock that packets want.
func (c *Cleaner) remove(ctx context.Context, stale []conntrack.Flow, sweep bool) (int, error) {
	done := 0
	for i, chunk := range slices.Collect(slices.Chunk(stale, sweepChunk)) {
		if sweep && i > 0 {
			select {
			case <-ctx.Done():
				return done, ctx.Err()
			case <-time.After(c.p.Pause):
			}
		}
		n, err := c.p.Table.Delete(ctx, chunk)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// stale tells whether a flow goes where it should not.
func (c *Cleaner) stale(x *conntrack.Flow) bool {
	key := model.FrontendKey{Family: model.FamilyOf(x.Orig.Dst.Addr()), Protocol: model.Protocol(x.Protocol),
		Addr: x.Orig.Dst.Addr(), Port: x.Orig.Dst.Port()}
	mine, ours := c.holder(key)
	switch {
	case !ours: // a key that was ours: flows that we sent on, and no others
		return x.Translated() && c.hadEnded(x, key)
	case contains(c.known[mine], endOf(x, mine)): // even untranslated: an endpoint on this node may have the very address of a Frontend
		return false
	case x.Translated():
		return !slices.Contains(c.p.Foreign, x.Reply.Src)
	}
	// Not translated, although it should be: it began before the Service was
	// known. Zones other than 0 belong to virtual switches, which may well track
	// the same packet before us, untranslated.
	return key.Protocol != model.TCP && x.Zone == 0
}

// holder gives the known key that answers for a destination: of one port, else a
// NodePort, else the range around it, as the data planes look them up.
func (c *Cleaner) holder(key model.FrontendKey) (mine model.FrontendKey, ours bool) {
	if _, ours = c.known[key]; ours {
		return key, true
	}
	if _, here := c.nodePorts[key.Addr]; here {
		mine = key
		mine.Addr = netip.Addr{}
		if _, ours = c.known[mine]; ours {
			return mine, true
		}
	}
	c.ranges.each(key, func(r model.FrontendKey) {
		if _, live := c.known[r]; live {
			mine, ours = r, true
		}
	})
	return mine, ours
}

// hadEnded tells whether a flow goes where a key sent it that has gone.
func (c *Cleaner) hadEnded(x *conntrack.Flow, key model.FrontendKey) bool {
	nodePort := key
	nodePort.Addr = netip.Addr{}
	found := slices.Contains(c.ended[key], x.Reply.Src) || slices.Contains(c.ended[nodePort], x.Reply.Src)
	c.ranges.each(key, func(r model.FrontendKey) {
		found = found || slices.Contains(c.ended[r], endOf(x, r))
	})
	return found
}
