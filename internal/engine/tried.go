package engine

import (
	"slices"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// maxTried bounds the attempted states that are kept of one Service. Backoffs grow to half
// a minute, so more states than these occur only if no write has succeeded for half an hour.
const maxTried = 64

// noteTried keeps the decisions of a sync whose write may not have been applied, or only
// in part. The observers were notified of them (BeforeWrite, or the Turn that failed), and
// the kernel may have forwarded packets by them. If such a decision is abandoned before a
// write succeeds, no other remembered state has its keys, and the sync that succeeds must
// report them as gone.
func (e *Engine) noteTried() {
	for i := range e.turn.Decided {
		k := e.turn.Decided[i].Key
		svc := e.services.Served(k)
		if list := e.tried[k]; svc != nil && !slices.ContainsFunc(list, func(old *model.Service) bool {
			return len(policy.LostKeys(svc, old)) == 0
		}) {
			e.tried[k] = append(list[max(0, len(list)+1-maxTried):], svc)
		}
	}
}

// lostKeys returns the keys that a Service had in the last report to the observers, or
// in a write attempted since then, and that it does not request now.
func (e *Engine) lostKeys(k model.ServiceKey) []model.FrontendKey {
	before := e.untold[k]
	if before == nil && len(e.tried) == 0 {
		return nil // the observers do not know the Service yet
	}
	now := e.services.Served(k)
	lost := policy.LostKeys(before, now)
	for _, svc := range e.tried[k] {
		for _, key := range policy.LostKeys(svc, now) {
			if !slices.Contains(lost, key) {
				lost = append(lost, key)
			}
		}
	}
	return lost
}

// told records that the current state of a Service was reported to the observers.
func (e *Engine) told(k model.ServiceKey) {
	delete(e.untold, k)
	delete(e.tried, k)
}
