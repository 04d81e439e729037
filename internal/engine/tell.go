package engine

import (
	"maps"
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// tellProblems reports the Problems of the input although nothing may be written yet, so
// that an operator who waits for the sources sees the reason.
func (e *Engine) tellProblems() {
	e.gatherProblems()
	t := &e.turn
	if len(t.Problems)+len(t.Well) == 0 {
		return
	}
	if e.p.OnTurn != nil {
		e.p.OnTurn(&Turn{Started: t.Started, Done: e.p.Now(), Waits: true, Problems: t.Problems, Well: t.Well})
	}
	t.Problems, t.Well = nil, nil
}

// finish notifies the observer (OnTurn) of the sync and prepares the next Turn.
func (e *Engine) finish(s scope, err error) {
	now := e.p.Now()
	e.gatherProblems()
	e.hurry = e.hurry && err != nil
	if err == nil && e.turn.Operations > 0 {
		e.rest(now)
	}
	if !e.worthTelling(s, err) {
		e.turn.Decided = nil
		return
	}
	t := &e.turn
	t.Done, t.Err, t.Complete = now, err, s >= listed
	t.Pending, t.Held = e.tr.PendingCount(), len(e.held)
	t.Services, t.Slices, t.Endpoints = e.st.Counts()
	t.NodeUnknown = e.nodeUnknown()
	if !e.toldView {
		t.View, t.Node = &e.view, e.st.Node()
	}
	e.gatherDecisions(s, err)
	next := Turn{}
	if err != nil || s == nothing { // not in the kernel yet: the next sync that succeeds reports them
		next.Triggers = t.Triggers
	}
	if s == nothing {
		t.Triggers = nil
	}
	if e.p.OnTurn != nil {
		e.p.OnTurn(t)
	}
	e.toldView = e.toldView || err == nil
	e.turn = next
}

// worthTelling reports whether the sync did, attempted or learned anything.
func (e *Engine) worthTelling(s scope, err error) bool {
	t := &e.turn
	return err != nil || t.Operations > 0 || t.Full || t.events > 0 || len(t.Problems)+len(t.Well) > 0 ||
		!e.toldView || s >= listed && len(e.untold) > len(e.held)+len(e.dirty) || len(t.Quarantined)+len(t.Rebuilt) > 0
}

// gatherDecisions fills Turn.Decided and Turn.Gone for the observers: the decisions that
// the kernel now has, or, after a failed write, may have. Other changes stay unreported until
// a later sync: only their Service keys are kept, and policy decides them again.
func (e *Engine) gatherDecisions(s scope, err error) {
	t := &e.turn
	t.Gone = nil
	switch {
	case s < listed || err != nil && dataplane.NothingDone(err):
		e.noteTried()
		t.Decided = nil
	case err == nil && e.allIsOfThisTurn():
		for i := range t.Decided {
			k := t.Decided[i].Key
			t.Gone = append(t.Gone, e.lostKeys(k)...)
		}
		e.forgetUntold()
	default:
		e.noteTried()
		e.gatherUntold(s, err == nil)
	}
}

// gatherUntold reports each Service of which the observers know a stale state.
func (e *Engine) gatherUntold(s scope, written bool) {
	t := &e.turn
	results := make(map[model.ServiceKey]policy.Result, len(t.Decided))
	for i := range t.Decided {
		results[t.Decided[i].Key] = t.Decided[i].Result
	}
	t.Decided = nil
	for _, k := range slices.SortedFunc(maps.Keys(e.untold), model.ServiceKey.Compare) {
		if _, undecided := e.dirty[k]; undecided || e.isHeld(k) {
			continue
		}
		gone := e.lostKeys(k)
		res, fresh := results[k]
		if !fresh {
			res = e.result(k)
			e.withhold(k, &res, s)
		}
		t.Decided = append(t.Decided, Decided{Key: k, Result: res})
		if written {
			t.Gone = append(t.Gone, gone...)
			e.told(k)
		}
	}
	if len(e.untold) == 0 {
		e.forgetUntold()
	}
}

// allIsOfThisTurn reports whether every unreported Service was decided in this sync and is
// in the kernel if the write succeeded. This is the usual case.
func (e *Engine) allIsOfThisTurn() bool {
	return len(e.dirty)+len(e.held) == 0 && len(e.turn.Decided) == len(e.untold)
}

// forgetUntold records that every change was reported.
func (e *Engine) forgetUntold() {
	if len(e.turn.Decided) > fewKeys {
		e.untold = map[model.ServiceKey]*model.Service{}
	}
	clear(e.untold)
	clear(e.tried)
}
