package app

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/internal/conntrack"
	"github.com/fairlead/fairlead/internal/engine"
	kernel "github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/model"
)

// addConntrack adds the cleaner of stale flows. Without conntrack's netlink there
// is none, with a warning: rules still work, stale UDP flows live until they time out.
func (a *agent) addConntrack() {
	table, err := kernel.Open(kernel.Config{})
	if err != nil {
		a.log.Warn("stale UDP flows will not be removed: cannot open conntrack", "error", err)
		return
	}
	a.conntrack = conntrack.New(conntrack.Params{Table: table, Families: a.caps.Families, ResetGone: a.cfg.ResetGoneEndpoints || a.accelerates(),
		Foreign: a.cfg.DNS.Addrs, Log: a.log.Logger, OnPass: a.onConntrackPass})
	a.add("conntrack cleaner", func(ctx context.Context) error { a.conntrack.Run(ctx); return nil })
}

func (a *agent) onConntrackPass(p conntrack.Pass) {
	for f, took := range p.Looked {
		a.metrics.Conntrack(f, took, p.Deleted[f])
	}
	if p.Err != nil {
		a.log.Warn("cannot remove stale flows; trying again", "error", fmt.Sprint(p.Err))
	}
}

// aboutToWrite is engine.Params.BeforeWrite: flows may begin because of the write before
// the sync is reported.
func (f *follower) aboutToWrite(decided []engine.Decided) {
	all := frontends(decided)
	if f.a.conntrack != nil {
		f.a.conntrack.Perhaps(all)
	}
	if f.a.traffic != nil {
		f.a.traffic.aboutToWrite(decided)
	}
	if f.a.unanswered != nil && !f.synced {
		f.a.unanswered.aboutToWrite(all)
	}
}

// cleanFlows passes the changes of a committed sync to the cleaner.
func (f *follower) cleanFlows(t *engine.Turn) {
	c := f.a.conntrack
	if c == nil {
		return
	}
	if t.View != nil {
		c.SetNodePortAddrs(t.View.NodePortAddrs)
	}
	if decided := frontends(t.Decided); len(decided)+len(t.Gone) > 0 {
		c.Update(decided, t.Gone)
	}
	if t.Complete && !f.swept { // never before: a Service whose slices have not been read appears to have no endpoints
		f.swept = true
		c.Sweep()
	}
}

// frontends returns the Frontends of all decisions.
func frontends(decided []engine.Decided) (out []model.Frontend) {
	for i := range decided {
		out = append(out, decided[i].Result.Frontends...)
	}
	return out
}
