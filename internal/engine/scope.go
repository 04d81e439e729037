package engine

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// scope is how much of what is pending may be written. Until every source is in
// nothing that serves is changed: a Service whose EndpointSlices have not come looks
// as if it had no endpoints, and the rules of before the restart are nearly right.
// kube-proxy waits in the same way, and for ever.
type scope uint8

const (
	nothing scope = iota
	// additions come after SyncLimit: Services that forward, and of which the kernel
	// holds nothing. A node that has just booted, or whose API server needs minutes
	// for a list, serves so what it knows already, and to write what nobody could
	// reach before can only help. What is known in the kernel is left alone, also if
	// it now seems to have other endpoints.
	additions
	// listed: each source that is not in has delivered all that it can read (a folder
	// with a file that does not parse). All of that is written, deletions included. Only
	// what an earlier run left in the kernel, and this run has not read, stays; see
	// leftovers.go.
	listed
	everything
)

// scope reports what may be written now.
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

func allListed(waiting map[string]bool) bool {
	for _, is := range waiting {
		if !is {
			return false
		}
	}
	return true
}

// writable returns what is pending within the scope, in the order of Pending.
func (e *Engine) writable(s scope) []diff {
	switch s {
	case everything, listed:
		return e.tr.Pending()
	case additions:
		return e.tr.Additions(owner{})
	}
	return nil
}

// premature reports that a decision must wait for the sources: it would refuse
// connections, perhaps only because slices have not come.
func premature(res *policy.Result, s scope) bool {
	if s >= listed {
		return false
	}
	return len(res.Frontends) == 0 || slices.ContainsFunc(res.Frontends, func(f model.Frontend) bool {
		return f.Verdict != model.Forward
	})
}
