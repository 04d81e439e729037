package wait

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	fairdns "github.com/fairlead/fairlead/internal/dns"
)

// The pauses between two checks. Fairlead's server answers by itself when its part is
// there, so only other servers, and programs that do not accept yet, are polled.
const (
	firstPause = 250 * time.Millisecond
	longPause  = time.Second
)

// Run waits. It returns nil when all is there, ErrTimeout when the time is over
// or ctx ends, and another error if the state cannot be determined.
func Run(ctx context.Context, p Params) error {
	if err := p.check(); err != nil {
		return err
	}
	n, err := findNameServer(&p)
	if err != nil {
		return err
	}
	w := &waiting{server: n, p: &p, start: time.Now(), accepted: map[netip.Addr]bool{}}
	last := w.until(ctx)
	if last.complete() {
		w.say("complete after %.1fs: %s", time.Since(w.start).Seconds(), last.summary)
		return nil
	}
	last.explainPods(ctx, n, &p)
	w.say("not complete after %.1fs: %s", time.Since(w.start).Seconds(), last.summary)
	for _, line := range last.missing {
		fmt.Fprintln(p.Out, "  "+line)
	}
	return fmt.Errorf("wait for Service %s/%s: %w", n.namespace, p.Service, ErrTimeout)
}

// waiting is one run.
type waiting struct {
	server   *nameServer
	p        *Params
	start    time.Time
	accepted map[netip.Addr]bool // have accepted a connection
	said     string
}

func (w *waiting) say(format string, args ...any) {
	fmt.Fprintf(w.p.Out, "service %s/%s: "+format+"\n", append([]any{w.server.namespace, w.p.Service}, args...)...)
}

// until checks until all is there, the time is over or ctx ends. It returns the last
// verdict that was not disturbed by the end.
func (w *waiting) until(ctx context.Context) *verdict {
	last := w.look(ctx, 0)
	for pause := firstPause; !last.complete(); pause = min(2*pause, longPause) {
		left := w.p.Timeout - time.Since(w.start)
		if left <= 0 || ctx.Err() != nil {
			break
		}
		if last.summary != w.said {
			w.said = last.summary
			w.say("waiting: %s", w.said)
		}
		wait := min(left, fairdns.MaxStatusWait)
		if !last.pushed {
			wait = 0
			select {
			case <-ctx.Done():
			case <-time.After(min(pause, left)):
			}
		}
		if v := w.look(ctx, wait); ctx.Err() == nil {
			last = v
		}
	}
	return last
}

// verdict is the outcome of one check.
type verdict struct {
	summary string
	missing []string // a line for each thing that is missing, with its reason
	absent  []string // hostnames that are in no EndpointSlice
	short   int      // endpoints that are missing without a name
	pushed  bool     // the server will answer when more is there
	// headless: the Service's name has the endpoints' addresses and no other.
	headless bool
}

func (v *verdict) complete() bool { return len(v.missing) == 0 }

func (v *verdict) miss(format string, args ...any) {
	v.missing = append(v.missing, fmt.Sprintf(format, args...))
}

// look checks once; the server may hold the answer for as long as wait.
func (w *waiting) look(ctx context.Context, wait time.Duration) *verdict {
	v, p := &verdict{}, w.p
	q := fairdns.StatusQuestion{Pods: p.Endpoints, Hosts: p.Hostnames, Wait: wait, List: p.Connect != 0}
	st, err := w.server.status(ctx, p, q)
	if err != nil {
		v.summary = "the name server cannot be queried"
		v.miss("%v", err)
		return v
	}
	v.pushed, v.headless = st.fairlead && !st.complete, !st.fairlead || st.kind == "headless"
	if st.fairlead && !st.exists {
		v.summary = "the Service does not exist"
		v.miss("no Service %s in namespace %s is known on this node", p.Service, w.server.namespace)
		return v
	}
	for _, h := range p.Hostnames {
		v.host(h, st)
	}
	v.count(p, st)
	if p.Connect != 0 {
		w.connect(ctx, v, w.wanted(st))
	}
	if p.Resolve {
		w.resolve(ctx, v)
	}
	v.summary = fmt.Sprintf("%d endpoints published", st.pods)
	if n := len(v.missing); n > 0 {
		v.summary += fmt.Sprintf(", %d things missing", n)
	}
	return v
}

// wanted returns the endpoints that must accept: all, if it does not matter which.
func (w *waiting) wanted(st *status) []endpoint {
	if w.p.Endpoints > 0 {
		return st.ready
	}
	return slices.DeleteFunc(st.ready, func(e endpoint) bool { return !slices.Contains(w.p.Hostnames, e.host) })
}

// host records why a hostname is missing, if it is.
func (v *verdict) host(h string, st *status) {
	i := slices.IndexFunc(st.missing, func(e endpoint) bool { return e.host == h })
	if i < 0 {
		return
	}
	switch e := st.missing[i]; {
	case !st.fairlead:
		v.miss("%s: not published (reason unknown: the name server is not Fairlead's)", h)
	case e.state == fairdns.StateNotReady:
		v.miss("%s %s: has an address, but is not ready", h, e.addr)
	case e.state == fairdns.StateLeft:
		v.miss("%s: was published until recently: its pod is being replaced", h)
	case e.state == fairdns.StateUntold:
		v.miss("%s: not published (the reason is reported only to pods that are endpoints in the Service's namespace)", h)
	default:
		v.absent = append(v.absent, h)
		v.miss("%s: is in no EndpointSlice: its pod does not exist, is not scheduled, or has no IP yet", h)
	}
}

// count checks the number of endpoints. A pod with addresses of two families is one.
func (v *verdict) count(p *Params, st *status) {
	if st.pods >= p.Endpoints {
		if st.fairlead && !st.complete && len(v.missing) == 0 {
			v.miss("the server reports an incomplete Service, without the missing names") // it limits the names that it lists
		}
		return
	}
	if st.cut {
		v.miss("at least %d of %d endpoints are published: the response of this name server has no room for more, and only Fairlead's reports the number", st.pods, p.Endpoints)
		return
	}
	v.miss("%d of %d endpoints are published", st.pods, p.Endpoints)
	for _, e := range st.missing {
		if e.state == fairdns.StateNotReady && !slices.Contains(p.Hostnames, e.host) { // else it was reported above
			v.miss("%s %s: has an address, but is not ready", e.host, e.addr)
		}
	}
	switch known := st.pods + st.waiting; {
	case !st.fairlead:
	case !st.told:
		v.miss("(endpoints that are not ready are reported only to pods that are endpoints in the Service's namespace)")
	case known < p.Endpoints:
		v.short = p.Endpoints - known
		v.miss("%d more are in no EndpointSlice: their pods do not exist, are not scheduled, or have no IP yet", v.short)
	}
}

// connect tries those that have not accepted yet.
func (w *waiting) connect(ctx context.Context, v *verdict, list []endpoint) {
	enough := func() bool {
		ok := slices.DeleteFunc(slices.Clone(list), func(e endpoint) bool { return !w.accepted[e.addr] })
		return len(w.p.Hostnames) == 0 && countPods(ok) >= w.p.Endpoints
	}
	if enough() {
		return
	}
	rest := slices.DeleteFunc(slices.Clone(list), func(e endpoint) bool { return w.accepted[e.addr] })
	wrong := connect(ctx, rest, w.p.Connect)
	for _, e := range rest {
		if wrong[e.addr] == "" {
			w.accepted[e.addr] = true
		}
	}
	if enough() {
		return // endpoints beyond the number asked for need not accept
	}
	for _, e := range rest {
		if why := wrong[e.addr]; why != "" {
			v.miss("%s %s: published, but TCP %d is %s", e.host, e.addr, w.p.Connect, why)
		}
	}
}

// mostResolved is the largest number of addresses that a lookup must return: an answer has
// no room for all of a large Service.
const mostResolved = 1000

// resolve resolves the names through the pod's search list and name server.
func (w *waiting) resolve(ctx context.Context, v *verdict) {
	n, p := w.server, w.p
	for _, h := range p.Hostnames {
		if !slices.Contains(v.absent, h) && n.lookup(ctx, h+"."+n.name(p.Service, n.namespace)) == 0 {
			v.miss("%s: its name does not resolve in this pod", h)
		}
	}
	if len(p.Hostnames) > 0 && p.Endpoints == 0 {
		return
	}
	want := 1
	if v.headless {
		want = max(1, min(p.Endpoints, mostResolved))
	}
	if got := n.lookup(ctx, n.name(p.Service, n.namespace)); got < want {
		v.miss("the Service's name resolves to %d of %d endpoints in this pod", got, want)
	}
}
