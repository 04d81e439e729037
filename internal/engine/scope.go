package engine

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// scope is which pending changes may be written. Until every source is synced, no
// rule in use is changed: a Service whose EndpointSlices have not come appears to
// have no endpoints, and the rules from before the restart are nearly correct.
// kube-proxy waits in the same way, without a limit.
type scope uint8

const (
	nothing scope = iota
	// additions are allowed after SyncLimit: Services that forward, and of which the
	// kernel holds nothing. So a node that has just booted, or whose API server needs
	// minutes for a list, serves the Services that it has received. Writing a Service
	// that no client could reach before can only help. A Service that the kernel holds is
	// left unchanged, even if it now appears to have other endpoints.
	additions
	// listed: each source that is not synced has delivered all that it can read (a folder
	// with a file that does not parse). All of that is written, deletions included. Only
	// objects that an earlier run left in the kernel, and that this run has not read, stay;
	// see leftovers.go.
	listed
	everything
)

// scope returns which pending changes may be written now.
func (e *Engine) scope(now time.Time) scope {
	switch {
	case len(e.waiting) == 0:
		return everything
	case allListed(e.waiting) && e.left == leftNone:
		return everything
	case allListed(e.waiting):
		return listed
	case now.Sub(e.started) >= e.p.SyncLimit:
		return additions
	}
	return nothing
}

// allListed reports whether each source that is not synced has delivered all that it can read.
func allListed(waiting map[string]bool) bool {
	for _, is := range waiting {
		if !is {
			return false
		}
	}
	return true
}

// writable returns the pending changes within the scope, in the order of Pending.
func (e *Engine) writable(s scope) []diff {
	switch s {
	case everything, listed:
		return e.tr.Pending()
	case additions:
		return e.tr.Additions(owner{})
	}
	return nil
}

// premature reports whether a decision must wait for the sources: it would refuse
// connections, possibly only because slices have not come.
func premature(res *policy.Result, s scope) bool {
	if s >= listed {
		return false
	}
	return len(res.Frontends) == 0 || slices.ContainsFunc(res.Frontends, func(f model.Frontend) bool {
		return f.Verdict != model.Forward
	})
}
