package takeover

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
)

// Params configure Run.
type Params struct {
	Kernels Kernels
	// Own is where the agent writes.
	Own Place
	// Leave: find and say, but remove nothing (--no-takeover).
	Leave bool
	// InKernel is closed once everything that is wanted is in the kernel.
	InKernel <-chan struct{}
	Log      *slog.Logger
	// Verify returns once our rules were compared with the kernel, or sees no need for it if there is
	// nothing to remove; nothing goes before.
	Verify func(ctx context.Context, toRemove bool) error
	// Looks are the pauses between looks whether what was removed came back; the
	// last one repeats.
	Looks []time.Duration
	// Live returns what shows that a kube-proxy runs in this network namespace, "" if nothing does; nil: it is not asked. The rules of one that
	// runs stay until it has gone.
	Live func(context.Context) string
	// Drain is how long connections through virtual servers of IPVS may go on that another proxy or mode has made.
	Drain time.Duration

	draining  []Leftover
	drainedBy time.Time
	failed    []Leftover // tried again with each look
	live      string     // what Live said last
}

// looks: a kube-proxy that runs puts its rules back when it next looks, every 30 s
// in iptables mode, or with the next change.
var looks = [...]time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, time.Minute}

// Run finds what others left, says so in one line each, removes it once our rules
// are in, and then says if it comes back. It returns when ctx ends.
func Run(ctx context.Context, p Params) error {
	if len(p.Looks) == 0 {
		p.Looks = looks[:]
	}
	for _, l := range p.found(ctx) {
		switch {
		case l.Place == p.Own && p.Own != NFTables: // of what the engine is just writing, a part looks like kube-proxy's
		case p.Leave:
			p.Log.Warn("found rules of another proxy and leave them as --no-takeover asks: of two that serve an address the one registered later wins", "what", l.String())
		default:
			p.Log.Info("found what another proxy left: it goes once our rules are in", "what", l.String())
		}
	}
	if p.Leave {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-p.InKernel:
	}
	list := p.found(ctx) // again: our own first write may have taken some of it over
	if err := p.Verify(ctx, len(list) > 0); err != nil {
		return nil //nolint:nilerr // ctx has ended
	}
	p.removeAll(ctx, p.withoutLive(ctx, list))
	return p.watch(ctx)
}

// withoutLive leaves kube-proxy's rules out of a list while a kube-proxy runs: without them no proxy of the two would serve what the other one's
// hooks take first, and it would write them again.
func (p *Params) withoutLive(ctx context.Context, list []Leftover) []Leftover {
	live := ""
	if p.Live != nil && slices.ContainsFunc(list, func(l Leftover) bool { return l.Owner == KubeProxy }) {
		live = p.Live(ctx)
	}
	if live != "" && p.live == "" {
		p.Log.Warn("kube-proxy runs in this network namespace: its rules stay until it has stopped; of two that serve an address the one registered later wins", "seen", live)
	}
	p.live = live
	if live == "" {
		return list
	}
	return slices.DeleteFunc(list, func(l Leftover) bool { return l.Owner == KubeProxy })
}

// found is what is not the agent's own. Failures are told, and looked at again.
func (p *Params) found(ctx context.Context) []Leftover {
	var out []Leftover
	for _, owner := range [...]string{Fairlead, KubeProxy} {
		list, err := p.Kernels.Find(ctx, owner)
		if err != nil && ctx.Err() == nil {
			p.Log.Warn("cannot find out what other proxies left", "error", err)
		}
		for _, l := range list {
			if owner != Fairlead || l.Place != p.Own {
				out = append(out, l)
			}
		}
	}
	return out
}

func (p *Params) removeAll(ctx context.Context, list []Leftover) {
	p.drainedBy = time.Now().Add(p.Drain)
	for _, l := range list {
		if l.retire == nil {
			p.remove(ctx, &l)
			continue
		}
		p.draining = append(p.draining, l)
	}
	p.drain(ctx)
}

func (p *Params) remove(ctx context.Context, l *Leftover) {
	switch err := l.Remove(ctx); {
	case err == nil:
		p.Log.Info("removed what another proxy left", "what", l.String())
	case l.Stuck != "":
		p.Log.Warn("cannot remove what another proxy left", "error", err)
	case ctx.Err() == nil: // somebody may have held the lock of iptables, or have written beside
		p.Log.Warn("cannot remove what another proxy left; trying again", "error", err)
		p.failed = append(p.failed, *l)
	}
}

func (p *Params) removeFailed(ctx context.Context) {
	list := p.failed
	p.failed = nil
	for i := range list {
		p.remove(ctx, &list[i])
	}
}

// drain removes what has no connections any more, or has had them for long enough.
func (p *Params) drain(ctx context.Context) {
	left := p.draining[:0]
	for _, l := range p.draining {
		switch n, err := l.retire(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil && time.Now().Before(p.drainedBy):
			p.Log.Warn("cannot retire what another proxy left", "what", l.String(), "error", err)
			left = append(left, l)
		case err == nil && n > 0 && time.Now().Before(p.drainedBy):
			p.Log.Info("what another proxy left gets no new connections and stays until the open ones end", "what", l.String(), "connections", n)
			left = append(left, l)
		default:
			p.remove(ctx, &l)
		}
	}
	p.draining = left
}

// calm is how many looks a place must have been clean for that what comes back counts as the first time again.
const calm = 60

// watch removes what comes back once, because a stale dump of rules may have been restored (k3s#7261), and says what happens if it comes back
// again: a proxy runs, and to remove its rules again and again would leave a gap each time. What a kube-proxy writes into the place where the
// agent itself writes is not looked for here: the engine finds it.
func (p *Params) watch(ctx context.Context) error {
	c := cameBack{p: p, removed: map[Place]int{}, warned: map[Place]bool{}}
	again := returns{p: p}
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(p.Looks[min(i, len(p.Looks)-1)]):
		}
		p.removeFailed(ctx)
		p.drain(ctx)
		now := again.look(ctx)
		waited := p.live != ""
		if waited || len(now) > 0 {
			list := p.withoutLive(ctx, p.found(ctx))
			if p.live == "" && waited { // the kube-proxy has gone
				p.removeAll(ctx, list)
			}
		}
		if !waited && p.live == "" {
			c.look(ctx, i, now)
		}
	}
}

// cameBack is what is known of places whose rules were removed and came back.
type cameBack struct {
	p       *Params
	removed map[Place]int  // the look at which a place was cleaned once more
	warned  map[Place]bool // the places of a proxy that runs
}

// look removes what is there again, or says that a proxy runs.
func (c *cameBack) look(ctx context.Context, i int, now map[Place]bool) {
	maps.DeleteFunc(c.warned, func(place Place, _ bool) bool { return !now[place] })
	for place := range now {
		at, before := c.removed[place]
		switch {
		case c.warned[place]:
		case before && i-at <= calm:
			c.warned[place] = true
			c.p.Log.Warn("another proxy runs in this network namespace: what was removed came back; stop it, then run fairlead cleanup --kube-proxy", "where", string(place))
		default:
			c.removed[place] = i
			c.p.Log.Info("rules of kube-proxy came back: removing them once more, for another program may have restored an old dump", "where", string(place))
			c.p.removeAll(ctx, slices.DeleteFunc(c.p.found(ctx), func(l Leftover) bool { return l.Owner != KubeProxy || l.Place != place }))
		}
	}
}

// returns looks cheaply whether rules are there again.
type returns struct {
	p      *Params
	legacy kernel.Stamp // that held nothing of kube-proxy's
}

func (r *returns) look(ctx context.Context) map[Place]bool {
	k, now := r.p.Kernels, map[Place]bool{}
	if tables, _ := k.tables(ctx, KubeProxy); len(tables) > 0 {
		now[NFTables] = true
	}
	if r.p.Own != IPTablesNFT && k.NFT != nil && k.hasChain(ctx) {
		now[IPTablesNFT] = true
	}
	legacy := k.backend(kernel.Legacy)
	if r.p.Own == IPTablesLegacy || legacy == nil || !kernel.LegacyInUse() {
		return now
	}
	stamp, err := legacy.Stamp(ctx)
	if err != nil || stamp == r.legacy {
		return now
	}
	switch n, err := k.Planes.CountChains(ctx, legacy, KubeProxy); {
	case err != nil:
	case n > 0:
		now[IPTablesLegacy] = true
	default:
		r.legacy = stamp
	}
	return now
}
