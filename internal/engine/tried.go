package engine

import (
	"slices"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// maxTried bounds the states that are kept of one Service. Pauses grow to half a
// minute, so more than these pass only if no write has worked for half an hour.
const maxTried = 64

// noteTried keeps what a turn decided if its write did not surely go in, or not
// whole. Followers heard of it (BeforeWrite, or the Turn that failed), and packets may
// have gone by it: if it is given up before a write works, no other state that is
// remembered has its keys, and the turn that works must tell them as gone.
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

// lostKeys returns the keys that a Service had when the followers were told last, or
// that a write since then tried to give it, and does not ask for now.
func (e *Engine) lostKeys(k model.ServiceKey) []model.FrontendKey {
	before := e.untold[k]
	if before == nil && len(e.tried) == 0 {
		return nil // it is new to them
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

// told notes that the followers know a Service as it is now.
func (e *Engine) told(k model.ServiceKey) {
	delete(e.untold, k)
	delete(e.tried, k)
}
