package conntrack

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/model"
)

// Params configure a Cleaner. Zero durations and counts mean the defaults given.
type Params struct {
	Table    conntrack.Table
	Families []model.Family // empty = both
	// ResetGone ends TCP connections too, to endpoints that exist no more
	// (--reset-gone-endpoints): the client's next packet is answered by a reset.
	ResetGone bool
	// Foreign are translations of others for addresses of ours, such as the
	// node-local DNS server: flows to them stay.
	Foreign []netip.AddrPort

	MaxFiltered int           // filtered dumps up to which they are cheaper than one of everything (4)
	SweepEvery  time.Duration // comparison of everything (15 min)
	Pause       time.Duration // between the deletions of a sweep (10 ms)
	Retry       time.Duration // first pause after a failure, doubling to a minute (1 s)
	Log         *slog.Logger
	OnPass      func(Pass) // called on the Cleaner's goroutine
}

// Pass tells what one look at the table did.
type Pass struct {
	Took    time.Duration
	Sweep   bool
	Dumps   int
	Deleted map[model.Family]int
	Err     error // the rest is tried again
}

// Cleaner removes stale flows. Its methods may be called from any goroutine and
// never wait for the kernel.
type Cleaner struct {
	p    Params
	bell chan struct{} // size 1: something is in the inbox

	mu sync.Mutex // guards in, for as long as it takes to swap it
	in inbox

	// The rest belongs to Run's goroutine.
	known     map[model.FrontendKey][]netip.AddrPort // where the flows of each key may go, sorted
	ended     map[model.FrontendKey][]netip.AddrPort // keys that are nobody's any more: where their flows went
	was       map[model.FrontendKey][]netip.AddrPort // where flows may have gone too, since the last word on their key
	ranges    ranges                                 // of both
	nodePorts map[netip.Addr]struct{}
	suspects  suspects
	inSync    bool
	failures  int
	retryAt   time.Time
	sweepAt   time.Time
}

// inbox is bounded by the number of keys: the latest word on each counts.
type inbox struct {
	changes   map[model.FrontendKey]change
	was       map[model.FrontendKey][]netip.AddrPort // see Cleaner.was
	nodePorts []netip.Addr
	sweep     bool
}

func (in *inbox) open() {
	if in.changes == nil {
		in.changes, in.was = map[model.FrontendKey]change{}, map[model.FrontendKey][]netip.AddrPort{}
	}
}

// put takes the latest word on a key. Flows may have begun by an earlier one.
func (in *inbox) put(k model.FrontendKey, ch change) {
	if earlier := in.changes[k].stay; len(earlier) > 0 {
		in.was[k] = union(in.was[k], earlier)
	}
	in.changes[k] = ch
}

// union of two lists, sorted.
func union(a, b []netip.AddrPort) []netip.AddrPort {
	if len(a) == 0 || len(b) == 0 {
		return append(a, b...)
	}
	out := slices.Concat(a, b)
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}

// change is where the flows of a key may go from now on.
type change struct {
	stay []netip.AddrPort
	gone bool
}

// New makes a Cleaner.
func New(p Params) *Cleaner {
	if p.MaxFiltered == 0 {
		p.MaxFiltered = 4
	}
	if p.SweepEvery == 0 {
		p.SweepEvery = 15 * time.Minute
	}
	if p.Pause == 0 {
		p.Pause = 10 * time.Millisecond
	}
	if p.Retry == 0 {
		p.Retry = time.Second
	}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	if p.OnPass == nil {
		p.OnPass = func(Pass) {}
	}
	return &Cleaner{p: p, bell: make(chan struct{}, 1),
		known: map[model.FrontendKey][]netip.AddrPort{}, ended: map[model.FrontendKey][]netip.AddrPort{},
		was: map[model.FrontendKey][]netip.AddrPort{}, ranges: ranges{}, suspects: newSuspects()}
}

// Update tells what was committed: Frontends decided, and keys that no longer
// belong to the Service that had them. A key that is in both has a new holder.
func (c *Cleaner) Update(decided []model.Frontend, gone []model.FrontendKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.open()
	for _, k := range gone {
		if c.concerns(k) {
			c.in.put(k, change{gone: true})
		}
	}
	for i := range decided {
		if f := &decided[i]; c.concerns(f.Key) {
			c.in.put(f.Key, change{stay: stay(f)})
		}
	}
	if len(c.in.changes) > 0 {
		c.ring()
	}
}

// Perhaps tells what may have been committed, by a write that failed: a flow may
// have begun by it, even if another word on its key comes before this is known.
func (c *Cleaner) Perhaps(decided []model.Frontend) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.open()
	for i := range decided {
		if f := &decided[i]; c.concerns(f.Key) {
			c.in.was[f.Key] = union(c.in.was[f.Key], stay(f))
		}
	}
}

// SetNodePortAddrs tells on which addresses NodePorts answer: a flow to the same
// port of any other machine is none of ours.
func (c *Cleaner) SetNodePortAddrs(addrs []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.nodePorts = append([]netip.Addr{}, addrs...)
	c.ring()
}

// Sweep compares all flows with what is known. Before the first Sweep nothing is
// removed: call it when everything is in sync, for a Service whose slices have
// not come yet looks as if it had no endpoints.
func (c *Cleaner) Sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.sweep = true
	c.ring()
}

func (c *Cleaner) ring() {
	select {
	case c.bell <- struct{}{}:
	default:
	}
}

// Run works until ctx ends.
func (c *Cleaner) Run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.bell:
		case <-timer.C:
		}
		c.turn(ctx)
		timer.Reset(c.untilNext())
	}
}

// turn takes the inbox and looks at the table if anything may be stale.
func (c *Cleaner) turn(ctx context.Context) {
	c.learn()
	now := time.Now()
	if c.inSync && !now.Before(c.sweepAt) {
		c.suspects.all = true
	}
	if !c.inSync || c.suspects.none() || now.Before(c.retryAt) {
		return
	}
	pass := c.pass(ctx)
	if ctx.Err() != nil {
		return
	}
	if pass.Err != nil {
		c.failures++
		c.retryAt = time.Now().Add(min(c.p.Retry<<min(c.failures-1, 6), time.Minute))
	} else {
		c.failures, c.retryAt = 0, time.Time{}
	}
	if pass.Dumps > 0 {
		c.p.OnPass(pass)
	}
}

func (c *Cleaner) untilNext() time.Duration {
	switch {
	case !c.inSync:
		return time.Hour
	case !c.retryAt.IsZero() && !c.suspects.none():
		return max(time.Until(c.retryAt), 0)
	}
	return max(time.Until(c.sweepAt), 0)
}
