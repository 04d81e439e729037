package engine

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/delta"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// decide runs policy and render for the given Services.
func (e *Engine) decide(keys []model.ServiceKey, s scope) {
	if len(keys) == 0 {
		return
	}
	t0 := e.p.Now()
	objs := e.objs
	emit := func(o dataplane.Object) {
		objs = append(objs, delta.Object[dataplane.Key]{Key: o.Key, Value: o.Value})
	}
	e.turn.Decided = slices.Grow(e.turn.Decided, len(keys))
	for _, k := range keys {
		res := e.result(k)
		if premature(&res, s) {
			e.dirty[k] = struct{}{}
			continue
		}
		e.withhold(k, &res, s)
		if problems := e.withUnserved(k, &res, e.withTooMany(k, &res)); len(problems)+len(e.troubled) > 0 {
			e.report(decision(k), problems)
		}
		objs = slices.Grow(objs[:0], 4*len(res.Frontends))
		for i := range res.Frontends {
			e.render(&res.Frontends[i], emit)
		}
		e.tr.Set(k, objs, e.turn.Started)
		e.turn.Decided = append(e.turn.Decided, Decided{Key: k, Result: res})
	}
	e.keepObjects(objs)
	e.turn.Phases[PhasePolicy] += e.p.Now().Sub(t0)
}

// render renders a Frontend of a usable family.
func (e *Engine) render(f *model.Frontend, emit func(dataplane.Object)) {
	if slices.Contains(e.p.Families, f.Key.Family) {
		e.p.Driver.Render(f, &e.view, emit)
	}
}

// maxKeptObjects bounds the list of objects that is kept between syncs; a Service
// of 50 000 endpoints, a fifth of them here, makes 10 000.
const maxKeptObjects = 1 << 14

// keepObjects keeps a list of objects for reuse in the next sync. A new list for a large
// Service would be a megabyte of garbage for each changed endpoint.
func (e *Engine) keepObjects(objs []delta.Object[dataplane.Key]) {
	if cap(objs) > maxKeptObjects {
		e.objs = nil
		return
	}
	clear(objs[:cap(objs)]) // an object in it can have a value of a megabyte
	e.objs = objs[:0]
}

// withTooMany returns the problems of a decision, and adds one if some of its backends get
// no connection because the data plane cannot hold so many.
func (e *Engine) withTooMany(k model.ServiceKey, res *policy.Result) []model.Problem {
	most := 0
	for i := range res.Frontends {
		most = max(most, len(res.Frontends[i].Backends), len(res.Frontends[i].LocalBackends))
	}
	if e.p.MaxBackends == 0 || most <= e.p.MaxBackends {
		return res.Problems
	}
	return append(slices.Clone(res.Problems), model.Problem{Object: "Service " + k.String(), Field: "spec.ports",
		Reason: fmt.Sprintf("has %d endpoints, of which the first %d are served", most, e.p.MaxBackends)})
}

// withUnserved adds a Problem for each reason why the data plane does not serve a Frontend, each reason once.
func (e *Engine) withUnserved(k model.ServiceKey, res *policy.Result, problems []model.Problem) []model.Problem {
	if e.p.Unsupported == nil {
		return problems
	}
	out := slices.Clone(problems)
	for i := range res.Frontends {
		f := &res.Frontends[i]
		why := e.p.Unsupported(f)
		p := model.Problem{Object: "Service " + k.String(), Field: "spec.ports", Reason: "port " + f.Port + ": " + why}
		if f.Port == "" {
			p.Reason = why
		}
		if why != "" && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// result returns policy's decision for one Service.
func (e *Engine) result(k model.ServiceKey) policy.Result {
	_, list := e.st.Service(k)
	if gone := e.leaving[k]; len(gone) > 0 {
		list = slices.Clone(list)
		for i := range gone {
			list = append(list, gone[i].slice)
		}
	}
	res := e.services.Decide(k, list)
	if e.p.OneList {
		res.OneList()
	}
	return res
}
