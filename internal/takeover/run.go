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
	// Own is the place where the agent writes.
	Own Place
	// Leave: find and log, but remove nothing (--no-takeover).
	Leave bool
	// InKernel is closed once the whole desired state is in the kernel.
	InKernel <-chan struct{}
	Log      *slog.Logger
	// Verify returns once the agent's rules were compared with the kernel; it may skip that if there is
	// nothing to remove. Nothing is removed before it returns.
	Verify func(ctx context.Context, toRemove bool) error
	// Looks are the pauses between checks whether removed rules came back; the
	// last one repeats.
	Looks []time.Duration
	// Live returns what shows that a kube-proxy runs in this network namespace, "" if nothing does; nil: this is not checked. The rules of a
	// running kube-proxy stay until it has stopped.
	Live func(context.Context) string
	// Drain is how long open connections through IPVS virtual servers of another proxy or mode may continue.
	Drain time.Duration
	// Report is called when another proxy is recognised because it writes its rules again, with the places, and with none once they are clean. It
	// may be nil.
	Report func(places []Place)
}

// looks are the default pauses: a running kube-proxy restores its rules at its next sync, every 30 s
// in iptables mode, or with the next change.
var looks = [...]time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, time.Minute}

// Run logs what other proxies left in this network namespace, removes it once the rules of the agent are in the kernel, and watches for rules
// that come back. It returns when ctx ends.
func Run(ctx context.Context, p Params) error {
	if len(p.Looks) == 0 {
		p.Looks = looks[:]
	}
	r := runner{Params: p, removed: map[Place]int{}, warned: map[Place]bool{}}
	if !p.Leave {
		r.askLive(ctx)
	}
	for _, l := range r.found(ctx) {
		switch {
		case r.live != "" && l.Owner == KubeProxy:
		case l.Place == p.Own && p.Own != NFTables: // a part of what the engine is writing now looks like kube-proxy's
		case p.Leave:
			p.Log.Warn("found rules of another proxy; keeping them because of --no-takeover: for an address that both serve, the proxy whose hooks were registered later takes precedence", "what", l.String())
		default:
			p.Log.Info("found rules that another proxy left; removing them when the agent's rules are in the kernel", "what", l.String())
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
	r.askLive(ctx)
	r.clear(ctx)
	return r.watch(ctx)
}

// runner is the state of one Run. Leftovers are not cached between checks: what could not be removed, or drains, is found again.
type runner struct {
	Params
	live    string               // what Live returned last
	left    map[Place]bool       // places where the last clear did not remove everything; true: the removal is retried
	drainBy map[string]time.Time // of draining leftovers, by Leftover.String: when they are removed although connections are open
	unread  string               // the last error of a search
	removed map[Place]int        // number of the check at which a place was cleaned because rules had come back
	warned  map[Place]bool       // places to which rules came back again: a proxy runs
}

// askLive checks whether a kube-proxy runs, and logs when that changes.
func (r *runner) askLive(ctx context.Context) {
	if r.Live == nil {
		return
	}
	before := r.live
	r.live = r.Live(ctx)
	switch {
	case before == "" && r.live != "":
		clear(r.removed)
		clear(r.warned)
		r.report()
		r.Log.Warn("kube-proxy runs in this network namespace: its rules stay until it has stopped; "+StopKubeProxy, "seen", r.live)
	case before != "" && r.live == "":
		r.Log.Info("kube-proxy has stopped; removing its rules")
	}
}

// StopKubeProxy is what to do about a kube-proxy that runs on the same node.
const StopKubeProxy = "stop it: delete its DaemonSet, or set a nodeSelector there that this node does not match"

// found returns the leftovers that the running mode does not own. An error is logged once until a different one occurs.
func (r *runner) found(ctx context.Context) []Leftover {
	var out []Leftover
	unread := ""
	for _, owner := range [...]string{Fairlead, KubeProxy} {
		list, err := r.Kernels.Find(ctx, owner)
		if err != nil && unread == "" {
			unread = err.Error()
		}
		for _, l := range list {
			if owner != Fairlead || l.Place != r.Own {
				out = append(out, l)
			}
		}
	}
	if ctx.Err() != nil {
		return out
	}
	if unread != "" && unread != r.unread {
		r.Log.Warn("cannot read the rules that other proxies left", "error", unread)
	}
	r.unread = unread
	return out
}

// removable returns what may be removed now. The rules of a kube-proxy that runs stay: without them neither proxy would serve what kube-proxy's
// hooks take first, and kube-proxy would write them again. So do those of a place to which they came back again.
func (r *runner) removable(ctx context.Context) []Leftover {
	return slices.DeleteFunc(r.found(ctx), func(l Leftover) bool { return l.Owner == KubeProxy && (r.live != "" || r.warned[l.Place]) })
}

// clear removes what may be removed, after the agent's own rules were compared with the kernel. Virtual servers with open connections get no new
// ones; they are removed after the last one has ended, or after Drain.
func (r *runner) clear(ctx context.Context) {
	list := r.removable(ctx)
	first := r.left == nil // the first time is always verified: a change of mode waits for it
	if first || slices.ContainsFunc(list, func(l Leftover) bool { return r.drainBy[l.String()].IsZero() }) {
		if err := r.Verify(ctx, len(list) > 0); err != nil { // ctx has ended
			return
		}
	}
	before := r.drainBy
	r.left, r.drainBy = map[Place]bool{}, map[string]time.Time{}
	for _, l := range list {
		if l.retire != nil {
			by, is := before[l.String()]
			if !is {
				by = time.Now().Add(r.Drain)
			}
			if r.drain(ctx, &l, by) {
				r.drainBy[l.String()], r.left[l.Place] = by, true
				continue
			}
		}
		r.remove(ctx, &l)
	}
}

// pending reports whether a removal that the last clear did not complete is retried.
func (r *runner) pending() bool {
	for _, again := range r.left {
		if again {
			return true
		}
	}
	return false
}

func (r *runner) remove(ctx context.Context, l *Leftover) {
	switch err := l.Remove(ctx); {
	case err == nil:
		r.Log.Info("removed rules that another proxy left", "what", l.String())
	case l.Stuck != "":
		if !r.left[l.Place] {
			r.left[l.Place] = false
		}
		r.Log.Warn("cannot remove rules that another proxy left", "error", err)
	case ctx.Err() == nil: // another program may hold the lock of iptables, or have written at the same time
		r.Log.Warn("cannot remove rules that another proxy left; trying again", "error", err)
		r.left[l.Place] = true
	}
}

// drain admits no new connections, and reports whether to wait for open ones.
func (r *runner) drain(ctx context.Context, l *Leftover, by time.Time) (wait bool) {
	n, err := l.retire(ctx)
	switch {
	case ctx.Err() != nil:
		return true
	case !time.Now().Before(by):
		return false
	case err != nil:
		r.Log.Warn("cannot drain what another proxy left", "what", l.String(), "error", err)
	case n > 0:
		r.Log.Info("draining what another proxy left: no new connections; removing it when the open ones have ended", "what", l.String(), "connections", n)
	}
	return err != nil || n > 0
}

// calm is the number of checks for which a place must have been clean before rules that come back count as the first time again.
const calm = 60

// watch removes what comes back once, because a stale dump of rules may have been restored (k3s#7261). If it comes back again a proxy runs, and
// its rules are left: to remove them again and again would leave a gap each time. What a kube-proxy writes into the place where the
// agent itself writes is not checked here: the engine finds it as drift.
func (r *runner) watch(ctx context.Context) error {
	again := returns{p: &r.Params}
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(r.Looks[min(i, len(r.Looks)-1)]):
		}
		waited := r.live != ""
		r.askLive(ctx)
		now := again.look(ctx)
		if r.live == "" && (waited || r.cameBack(i, now)) || r.pending() {
			r.clear(ctx)
		}
	}
}

// cameBack reports whether rules that came back are to be removed once more, and logs those of a proxy that runs.
func (r *runner) cameBack(i int, now map[Place]bool) (remove bool) {
	before := len(r.warned)
	maps.DeleteFunc(r.warned, func(place Place, _ bool) bool { return !now[place] })
	changed := len(r.warned) != before
	for place := range now {
		at, again := r.removed[place]
		_, left := r.left[place]
		switch {
		case left || r.warned[place]:
		case again && i-at <= calm:
			r.warned[place], changed = true, true
			r.Log.Warn("another proxy runs in this network namespace: the rules that were removed came back; stop it, then run fairlead cleanup --kube-proxy", "where", string(place))
		default:
			r.removed[place], remove = i, true
			r.Log.Info("rules of kube-proxy came back; removing them once more: another program may have restored an old dump", "where", string(place))
		}
	}
	if changed {
		r.report()
	}
	return remove
}

// report reports the places where a proxy writes its rules again.
func (r *runner) report() {
	if r.Report != nil {
		r.Report(slices.Sorted(maps.Keys(r.warned)))
	}
}

// returns is a cheap check whether rules came back.
type returns struct {
	p      *Params
	legacy kernel.Stamp // of the last state without objects of kube-proxy
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
