package app

import (
	"strings"

	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/model"
)

// tellProblems logs each object's problems once, until they change.
func (f *follower) tellProblems(list []model.Problem, well []string) {
	for _, object := range well {
		delete(f.problems, object)
	}
	byObject := map[string][]string{}
	for _, p := range list {
		byObject[p.Object] = append(byObject[p.Object], p.String())
	}
	for object, lines := range byObject {
		text := strings.Join(lines, "\n")
		if f.problems[object] == text {
			continue
		}
		f.problems[object] = text
		for _, l := range lines {
			f.a.log.Warn("bad input: " + l)
		}
	}
	if len(byObject)+len(well) > 0 {
		kinds := map[string]int{"service": 0, "endpointslice": 0, "node": 0, "file": 0}
		for object := range f.problems {
			kind, _, _ := strings.Cut(strings.ToLower(object), " ")
			kinds[kind]++
		}
		for k, n := range kinds {
			f.a.metrics.Problems(k, n)
		}
	}
}

// tellQuarantine says which Services the kernel refused, in the log and as an
// Event on the Service.
func (f *follower) tellQuarantine(list []engine.Quarantined) {
	for _, q := range list {
		f.a.log.Error("the kernel refused a Service: put aside, the others go on", "service", q.Service, "objects", q.Objects, "error", q.Err)
		if f.a.recorder != nil && q.Service != (model.ServiceKey{}) {
			f.a.recorder.Warn(q.Service, "ProxyRulesRefused", "the kernel of this node refused "+strings.Join(q.Objects, ", ")+": "+q.Err.Error())
		}
	}
}
