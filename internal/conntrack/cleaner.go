package conntrack

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
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
	// Foreign are translations that other programs have for addresses of Services, such as
	// the node-local DNS server. Flows to them are kept.
	Foreign []netip.AddrPort

	MaxFiltered int           // filtered dumps up to which they are cheaper than one of everything (4)
	MaxSuspects int           // suspects up to which a pass uses filters; above it, everything is compared (10 000)
	MaxStale    int           // stale flows that one read remembers; they are deleted before the next read (50 000)
	SweepEvery  time.Duration // comparison of everything (15 min)
	Pause       time.Duration // between the deletions of a sweep (10 ms)
	Retry       time.Duration // first pause after a failure, doubling to a minute (1 s)
	Rest        int           // pause after a pass, in times of what it took, up to a second (9; negative = none); see rest
	Log         *slog.Logger
	OnPass      func(Pass) // called on the Cleaner's goroutine
}

// Pass is the result of one pass over the table.
type Pass struct {
	Took    time.Duration
	Sweep   bool
	Dumps   int
	Looked  map[model.Family]time.Duration // time for each family that was read
	Deleted map[model.Family]int
	Err     error // the rest is retried
}

// Cleaner removes stale flows. Its methods may be called from any goroutine and
// never wait for the kernel.
type Cleaner struct {
	p    Params
	bell chan struct{} // size 1: something is in the inbox

	mu    sync.Mutex // guards in, swept and addrs, for as long as it takes to swap in
	in    inbox
	swept bool                    // Sweep was called: from here on flows are removed
	addrs map[netip.Addr]struct{} // the NodePort addresses of the last SetNodePortAddrs

	// The rest belongs to Run's goroutine.
	known     endpoints                           // by held key: where its flows may go
	maybe     endpoints                           // where they may go too: endpoints of pending writes whose result is not known yet
	lost      map[model.FrontendKey]lostEndpoints // by key, held or not: endpoints lost since the last pass
	ranges    ranges                              // keys of many ports, of all of these
	nodePorts map[netip.Addr]struct{}
	moved     map[netip.Addr]int // NodePort addresses added or removed since the last successful pass: value of rounds at that time
	suspects  suspects
	inSync    bool
	rounds    int // passes begun
	failures  int
	notBefore time.Time // of the next pass
	rested    time.Time // end of the pauses requested by earlier passes
	sweepAt   time.Time
}

// endpoints are sorted lists by key.
type endpoints map[model.FrontendKey][]netip.AddrPort

// lostEndpoints are endpoints to which the flows of a key went and should not go any
// more. Once no Service holds the key, they decide which flows are stale.
type lostEndpoints struct {
	at    []netip.AddrPort // sorted
	round int              // passes begun when the last one was lost: the next pass ends their flows
}

// New makes a Cleaner.
func New(p Params) *Cleaner {
	p.MaxFiltered, p.MaxSuspects, p.MaxStale = cmp.Or(p.MaxFiltered, 4), cmp.Or(p.MaxSuspects, 10_000), cmp.Or(p.MaxStale, 50_000)
	p.SweepEvery, p.Pause, p.Retry = cmp.Or(p.SweepEvery, 15*time.Minute), cmp.Or(p.Pause, 10*time.Millisecond), cmp.Or(p.Retry, time.Second)
	p.Rest = cmp.Or(p.Rest, 9)
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	if p.OnPass == nil {
		p.OnPass = func(Pass) {}
	}
	return &Cleaner{p: p, bell: make(chan struct{}, 1), known: endpoints{}, maybe: endpoints{},
		lost: map[model.FrontendKey]lostEndpoints{}, moved: map[netip.Addr]int{}, ranges: ranges{}, suspects: newSuspects()}
}

// Update records what was committed: the Frontends that were decided, and the keys that
// no longer belong to the Service that owned them. A key that is in both has a new
// owner.
func (c *Cleaner) Update(decided []model.Frontend, gone []model.FrontendKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
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
	if len(c.in.words) > 0 {
		c.ring()
	}
}

// Perhaps records a pending write before it is committed. From then on flows may begin
// by it, and a read of the table that is under way must not handle them as stale. The
// next Update of a key reports the result.
func (c *Cleaner) Perhaps(decided []model.Frontend) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.swept {
		return // the Update that comes before the first Sweep says the same
	}
	for i := range decided {
		if f := &decided[i]; c.concerns(f.Key) {
			c.in.perhaps(f.Key, stay(f))
		}
	}
}

// SetNodePortAddrs sets the addresses on which NodePorts are served. It is called after
// the data plane has committed them. Flows to an address that was added began without
// translation if they are older than the rules. Flows to an address that was removed
// belong to the host that owns it now. Both are deleted. Flows to a NodePort of any
// other address are not the agent's.
func (c *Cleaner) SetNodePortAddrs(addrs []netip.Addr) {
	now := make(map[netip.Addr]struct{}, len(addrs))
	for _, a := range addrs {
		now[a] = struct{}{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if maps.Equal(now, c.addrs) {
		return
	}
	c.in.addresses(c.addrs, now)
	c.addrs = now
	c.ring()
}

// Sweep compares all flows with the known state. Before the first Sweep no flow is
// removed. The caller calls it when everything is in sync, because a Service whose
// slices have not been received yet seems to have no endpoints.
func (c *Cleaner) Sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.sweep, c.swept = true, true
	c.ring()
}

func (c *Cleaner) ring() {
	select {
	case c.bell <- struct{}{}:
	default:
	}
}

// Run handles updates until ctx ends.
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

// turn takes the inbox and reads the table if any flow may be stale.
func (c *Cleaner) turn(ctx context.Context) {
	c.learn()
	now := time.Now()
	if c.inSync && !now.Before(c.sweepAt) {
		c.suspects.all = true
	}
	if !c.inSync || c.suspects.none() || now.Before(c.notBefore) {
		return
	}
	pass := c.pass(ctx)
	if ctx.Err() != nil {
		return
	}
	if pass.Err != nil {
		c.failures++
		c.notBefore = time.Now().Add(min(c.p.Retry<<min(c.failures-1, 6), time.Minute))
	} else {
		c.failures = 0
		c.rest(now, pass.Took)
	}
	if pass.Dumps > 0 {
		c.p.OnPass(pass)
	}
}

func (c *Cleaner) untilNext() time.Duration {
	switch {
	case !c.inSync:
		return time.Hour
	case !c.suspects.none():
		return max(time.Until(c.notBefore), 0)
	}
	return max(time.Until(c.sweepAt), 0)
}
