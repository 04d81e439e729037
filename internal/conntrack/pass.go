package conntrack

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/model"
)

// sweepChunk is how many deletions a sweep makes without a pause. maxLooks bounds how
// often a pass reads the flows of one filter, when there are more stale flows than it
// may remember.
const (
	sweepChunk = 1_000
	maxLooks   = 100
)

// pass reads the suspects once and removes the stale flows. After a failure the
// suspects are kept for the retry.
func (c *Cleaner) pass(ctx context.Context) Pass {
	start := time.Now()
	what := c.suspects
	c.suspects = newSuspects() // what is learned during this pass waits for the next one
	c.rounds++
	p := Pass{Sweep: what.all, Looked: map[model.Family]time.Duration{}, Deleted: map[model.Family]int{}}
	for _, f := range c.filters(&what) {
		begun := time.Now()
		err := c.clean(ctx, f, &p)
		p.Looked[modelFamily(f.Family)] += time.Since(begun)
		if err != nil {
			p.Err = err
			break
		}
	}
	p.Took = time.Since(start)
	if p.Err != nil {
		c.suspects.add(&what)
		return p
	}
	if p.Sweep {
		c.sweepAt = time.Now().Add(c.p.SweepEvery)
	}
	maps.DeleteFunc(c.moved, func(_ netip.Addr, round int) bool { return round < c.rounds })
	maps.DeleteFunc(c.lost, func(_ model.FrontendKey, l lostEndpoints) bool { return l.round < c.rounds })
	c.ranges.keep(func(k model.FrontendKey) bool {
		_, known := c.known[k]
		_, maybe := c.maybe[k]
		_, lost := c.lost[k]
		return known || maybe || lost
	})
	return p
}

// clean removes the stale flows that match one filter.
func (c *Cleaner) clean(ctx context.Context, f conntrack.Filter, p *Pass) error {
	for range maxLooks {
		more, err := c.look(ctx, f, p)
		if err != nil || !more {
			return err
		}
	}
	return errors.New("stale flows appear faster than they are removed")
}

// look reads the flows that match one filter once and removes the stale ones, as many
// as it may remember. It returns whether there may be more.
func (c *Cleaner) look(ctx context.Context, f conntrack.Filter, p *Pass) (more bool, err error) {
	var stale []conntrack.Flow
	p.Dumps++
	interrupted := c.p.Table.Flows(ctx, f, func(x conntrack.Flow) {
		if len(stale) < c.p.MaxStale && c.stale(&x) {
			stale = append(stale, x)
		}
	})
	if interrupted != nil && !errors.Is(interrupted, conntrack.ErrInterrupted) {
		return false, interrupted
	}
	more = len(stale) == c.p.MaxStale
	// Flows may have begun by what was committed while the table was read. That is in the
	// inbox, because updates are recorded there before they are committed.
	c.learn()
	stale = slices.DeleteFunc(stale, func(x conntrack.Flow) bool { return !c.stale(&x) })
	n, err := c.remove(ctx, stale, p.Sweep) // after a partial dump the flows that were returned are still valid
	p.Deleted[modelFamily(f.Family)] += n
	return more, errors.Join(interrupted, err)
}

// remove deletes flows. A sweep pauses between deletions, because no caller waits for
// it and every deletion takes a lock that the packet path needs.
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

// stale reports whether a flow goes to a destination that is not desired.
func (c *Cleaner) stale(x *conntrack.Flow) bool {
	key := model.FrontendKey{Family: model.FamilyOf(x.Orig.Dst.Addr()), Protocol: model.Protocol(x.Protocol),
		Addr: x.Orig.Dst.Addr(), Port: x.Orig.Dst.Port()}
	mine, ours := c.holder(key)
	switch {
	case !ours && c.toRemoved(x, key):
		return true
	case c.goesTo(x, key, func(k model.FrontendKey) []netip.AddrPort { return c.maybe[k] }):
		return false
	case !ours: // a key that a Service owned before: only flows that the agent's rules translated
		return x.Translated() && c.goesTo(x, key, func(k model.FrontendKey) []netip.AddrPort { return c.lost[k].at })
	case contains(c.known[mine], endOf(x, mine)): // even untranslated: an endpoint on this node may have the very address of a Frontend
		return false
	case x.Translated():
		return !slices.Contains(c.p.Foreign, x.Reply.Src)
	}
	// Not translated, although it should be: it began before the Service was known. Zones
	// other than 0 belong to virtual switches, which may track the same packet earlier,
	// untranslated.
	return key.Protocol != model.TCP && x.Zone == 0
}

// holder returns the known key that owns a destination: the key of one port, else a
// NodePort, else the range around it. The data planes use the same lookup order.
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

// toRemoved reports whether a flow was translated for a NodePort on an address on which
// the node serves no NodePorts any more. A TCP connection is kept: an address that is
// removed with its link usually returns with it, and otherwise the client detects the
// loss.
func (c *Cleaner) toRemoved(x *conntrack.Flow, key model.FrontendKey) bool {
	if key.Protocol == model.TCP {
		return false
	}
	_, moved := c.moved[key.Addr]
	if _, here := c.nodePorts[key.Addr]; here || !moved || !x.Translated() || contains(c.maybe[key], x.Reply.Src) {
		return false
	}
	key.Addr = netip.Addr{}
	return contains(c.known[key], x.Reply.Src) || contains(c.maybe[key], x.Reply.Src) || contains(c.lost[key].at, x.Reply.Src)
}

// goesTo reports whether a flow for a key goes to an endpoint of a list of that key,
// or of one that answers for the same packets.
func (c *Cleaner) goesTo(x *conntrack.Flow, key model.FrontendKey, list func(model.FrontendKey) []netip.AddrPort) bool {
	nodePort := key
	nodePort.Addr = netip.Addr{}
	found := contains(list(key), x.Reply.Src) || contains(list(nodePort), x.Reply.Src)
	c.ranges.each(key, func(r model.FrontendKey) {
		found = found || contains(list(r), endOf(x, r))
	})
	return found
}
