package wait

import (
	"context"
	"fmt"
	"strings"
	"time"

	fairdns "github.com/fairlead/fairlead/internal/dns"
)

// interval is how often the agent is asked: it answers from memory, and a
// program that starts a quarter of a second late is not noticed.
const interval = 250 * time.Millisecond

// Run waits. It returns nil when all is there, ErrTimeout when the time is over
// or ctx ends, another error if it cannot be found out.
func Run(ctx context.Context, p Params) error {
	if err := p.check(); err != nil {
		return err
	}
	a, err := findAgent(&p)
	if err != nil {
		return err
	}
	start := time.Now()
	var last *verdict
	for said := ""; ; {
		v := a.look(ctx, &p)
		if v.complete() {
			fmt.Fprintf(p.Out, "%s: complete after %.1fs: %s\n", a.title(&p), time.Since(start).Seconds(), v.summary)
			return nil
		}
		if v.summary != said {
			said = v.summary
			fmt.Fprintf(p.Out, "%s: waiting: %s\n", a.title(&p), said)
		}
		last = v
		left := p.Timeout - time.Since(start)
		if left <= 0 || ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(interval, left)):
		}
	}
	last.explainPods(ctx, a, &p)
	fmt.Fprintf(p.Out, "%s: not complete after %.1fs: %s\n", a.title(&p), time.Since(start).Seconds(), last.summary)
	for _, line := range last.missing {
		fmt.Fprintln(p.Out, "  "+line)
	}
	return fmt.Errorf("wait for Service %s/%s: %w", a.namespace, p.Service, ErrTimeout)
}

func (a *agent) title(p *Params) string { return "service " + a.namespace + "/" + p.Service }

// verdict is the outcome of one look.
type verdict struct {
	summary string
	missing []string // a line for each thing that is missing, with its reason
	absent  []string // hostnames that are in no EndpointSlice
	short   int      // endpoints that are missing without a name
}

func (v *verdict) complete() bool { return len(v.missing) == 0 }

func (v *verdict) miss(format string, args ...any) {
	v.missing = append(v.missing, fmt.Sprintf(format, args...))
}

// look finds out once.
func (a *agent) look(ctx context.Context, p *Params) *verdict {
	v := &verdict{}
	st, err := a.status(ctx, p)
	if err != nil {
		v.summary = err.Error()
		v.miss("%v", err)
		return v
	}
	if st.fairlead && !st.exists {
		v.summary = "there is no such Service"
		v.miss("this node knows no Service %s in namespace %s", p.Service, a.namespace)
		return v
	}
	ready := st.published()
	want := v.hostnames(p, st, ready)
	v.count(p, st, len(ready))
	if p.Endpoints > 0 {
		want = ready
	}
	if p.Connect != 0 {
		v.connect(ctx, p, want)
	}
	if p.Resolve {
		v.resolve(ctx, a, p, st)
	}
	v.summary = fmt.Sprintf("%d endpoints published", len(ready))
	if n := len(v.missing); n > 0 {
		v.summary += fmt.Sprintf(", %d things missing", n)
	}
	return v
}

func (st *status) published() (list []endpoint) {
	for _, e := range st.endpoints {
		if e.state == fairdns.StateReady {
			list = append(list, e)
		}
	}
	return list
}

// hostnames checks the names that were asked for and gives those published.
func (v *verdict) hostnames(p *Params, st *status, ready []endpoint) (found []endpoint) {
	for _, h := range p.Hostnames {
		n := len(found)
		for _, e := range ready {
			if e.host == h {
				found = append(found, e)
			}
		}
		if len(found) == n {
			v.absentHost(h, st)
		}
	}
	return found
}

func (v *verdict) absentHost(h string, st *status) {
	if !st.fairlead {
		v.miss("%s: not published (the name server is not Fairlead's and knows no reasons)", h)
		return
	}
	for _, e := range st.endpoints {
		switch {
		case e.host != h:
		case e.state == fairdns.StateNotReady:
			v.miss("%s %s: has an address, but is not ready", h, e.addr)
			return
		case e.state == fairdns.StateLeft:
			v.miss("%s: was published a short while ago and is gone: its pod is being replaced", h)
			return
		}
	}
	v.absent = append(v.absent, h)
	v.miss("%s: is in no EndpointSlice: its pod does not exist, is not scheduled, or has no IP yet", h)
}

// count checks the number of endpoints.
func (v *verdict) count(p *Params, st *status, ready int) {
	if ready >= p.Endpoints {
		return
	}
	v.miss("%d of %d endpoints are published", ready, p.Endpoints)
	known := ready
	for _, e := range st.endpoints {
		if e.state == fairdns.StateNotReady {
			known++
			if !contains(p.Hostnames, e.host) { // else it has been said
				v.miss("%s %s: has an address, but is not ready", e.host, e.addr)
			}
		}
	}
	if st.fairlead && known < p.Endpoints {
		v.short = p.Endpoints - known
		v.miss("%d more are in no EndpointSlice: their pods do not exist, are not scheduled, or have no IP yet", v.short)
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func (v *verdict) connect(ctx context.Context, p *Params, list []endpoint) {
	wrong := connect(ctx, list, p.Connect)
	accepted := len(list) - len(wrong)
	if len(p.Hostnames) == 0 && accepted >= p.Endpoints {
		return // more endpoints than asked for may be as they like
	}
	for _, e := range list {
		if why := wrong[e.addr]; why != "" {
			v.miss("%s %s: published, but TCP %d is %s", e.host, e.addr, p.Connect, why)
		}
	}
}

// resolve asks what the program will ask.
func (v *verdict) resolve(ctx context.Context, a *agent, p *Params, st *status) {
	if strings.HasPrefix(st.kind, "cluster") {
		if a.lookup(ctx, a.name(p.Service, a.namespace)) == 0 {
			v.miss("the Service's name does not resolve in this pod")
		}
		return
	}
	for _, h := range p.Hostnames {
		if !contains(v.absent, h) && a.lookup(ctx, h+"."+a.name(p.Service, a.namespace)) == 0 {
			v.miss("%s: is not in this node's DNS", h)
		}
	}
	if n := a.lookup(ctx, a.name(p.Service, a.namespace)); n < p.Endpoints {
		v.miss("the Service's name resolves to %d of %d addresses in this pod", n, p.Endpoints)
	}
}
