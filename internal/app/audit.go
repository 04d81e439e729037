package app

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/control"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/inspect"
	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/takeover"
)

const (
	// auditShare bounds the cost of audits on demand, because each reads everything. The pause before the next audit of the same
	// kind is the duration of the last times auditShare, within the bounds below. Until then the last answer is returned from the cache.
	auditShare    = 20
	shortestPause = time.Second
	longestPause  = time.Minute
	// auditLimit bounds one audit; changes have priority over it.
	auditLimit = 90 * time.Second
)

// auditor runs audits on demand, one at a time, and caches the last of each kind.
type auditor struct {
	mu   sync.Mutex
	last map[bool]*inspect.Audit // by whether it repaired
}

// recent returns the last audit of its kind while it is too early for another.
func (a *auditor) recent(repair bool, now time.Time) (inspect.Audit, bool) {
	last := a.last[repair]
	if last == nil || !now.Before(last.Next) {
		return inspect.Audit{}, false
	}
	again := *last
	again.Repeated = true
	return again, true
}

// keep caches an audit, and sets the time in it when the next may run.
func (a *auditor) keep(repair bool, last *inspect.Audit) {
	last.Next = last.At.Add(min(max(auditShare*last.Took, shortestPause), longestPause))
	a.last[repair] = last
}

// audit answers /audit?foreign=true&repair=false.
func (i *inspection) audit(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(auditLimit + engineLimit))
	ctx, cancel := context.WithTimeout(r.Context(), auditLimit)
	defer cancel()
	out, err := i.comparison(ctx, r.URL.Query().Get("repair") != "false")
	if err != nil {
		http.Error(w, "cannot compare the kernel with the desired state within "+auditLimit.String()+": changes are being written first, or the first sync is not complete", http.StatusServiceUnavailable)
		return
	}
	out.Now = time.Now()
	out.Unserved = i.a.memory.notes.Unserved(3)
	if out.Also, err = i.strangers(ctx, i.a.otherProxy(ctx) != ""); err != nil {
		http.Error(w, "check for rules of another proxy: "+err.Error(), http.StatusInternalServerError)
		return
	}
	if r.URL.Query().Get("foreign") == "true" {
		rules, unread, err := i.foreign(ctx)
		if err != nil {
			http.Error(w, "read the rules of other programs: "+err.Error(), http.StatusInternalServerError)
			return
		}
		var others []inspect.Other
		if !i.inspect(w, r, func(v engine.View) { others = inspect.Concerns(rules, v) }) {
			return
		}
		out.Others, out.Unread = &others, unread
	}
	control.Answer(w, &out)
}

// comparison audits, or returns the last audit of its kind if it is too early for another.
func (i *inspection) comparison(ctx context.Context, repair bool) (inspect.Audit, error) {
	i.audits.mu.Lock()
	defer i.audits.mu.Unlock()
	if last, early := i.audits.recent(repair, time.Now()); early {
		return last, nil
	}
	a, err := i.a.engine.Look(ctx)
	if err != nil {
		return inspect.Audit{}, err
	}
	switch differ := a.Missing+a.Different+a.Foreign > 0; {
	case !differ:
		i.a.memory.audited(time.Now())
	case repair: // the engine compares once more, for it repairs what it has read itself
		again, err := i.a.engine.Audit(ctx)
		if err != nil {
			return inspect.Audit{}, err
		}
		if again.Missing+again.Different+again.Foreign > 0 { // else the drift has been repaired since
			a = again
		}
	}
	out := inspect.Audit{At: time.Now(), Objects: a.Objects, Compared: a.Compared, Took: a.Took, Missing: a.Missing, Different: a.Different, Foreign: a.Foreign, Names: a.Names, Left: !repair, Relays: i.a.rootless != nil}
	i.audits.keep(repair, &out)
	return out, nil
}

// foreign returns the rules of other programs that can end a packet's way; unread reports which could not be read.
func (i *inspection) foreign(ctx context.Context) (out []inspect.Rule, unread string, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	k, err := i.socket()
	if err != nil {
		return nil, "", err
	}
	look := takeover.Kernels{NFT: k, Planes: planes()}
	look.Planes.OurChain = func(at takeover.Place, table, chain string) bool {
		return inspect.OursAmong(string(at) == i.a.place, table, chain)
	}
	if kernel.LegacyInUse() {
		if legacy, err := openBackend(kernel.Legacy); err == nil {
			defer func() { _ = legacy.Close() }()
			look.IPTables = append(look.IPTables, legacy)
		} else {
			unread = "cannot read the rules in iptables-legacy: " + err.Error()
		}
	}
	list, err := look.Strangers(ctx)
	for _, s := range list {
		e := s.Effect
		out = append(out, inspect.Rule{Where: s.Where, Does: e.Ends, Daddr: e.Daddr, Saddr: e.Saddr, Dport: e.Dport})
	}
	return out, unread, err
}
