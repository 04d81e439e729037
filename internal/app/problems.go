package app

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/internal/model"
)

const (
	// mostLines is how many lines about bad input are written within linesWindow: a
	// folder that was copied into itself has as many problems as objects, and would
	// bury everything else.
	mostLines   = 50
	linesWindow = time.Minute
)

// problemLog logs each problem once, and for those that request it, their
// end.
type problemLog struct {
	log  *slog.Logger
	now  func() time.Time
	told map[string]toldProblem // by object

	window time.Time // when the lines began to be counted
	lines  int       // about bad input since then
}

type toldProblem struct {
	lines []string
	kind  model.ProblemKind
	well  string // what to say when all is well again
	since time.Time
}

func newProblemLog(log *slog.Logger, now func() time.Time) *problemLog {
	return &problemLog{log: log, now: now, told: map[string]toldProblem{}}
}

// tell updates the problems of the objects in list, and removes the objects that have none
// any more. Of an object with several problems only the new ones are logged.
func (p *problemLog) tell(list []model.Problem, well []string) {
	for _, object := range well {
		if t, ok := p.told[object]; ok && t.well != "" {
			p.log.Info(t.well, "after", p.now().Sub(t.since).Round(100*time.Millisecond))
		}
		delete(p.told, object)
	}
	current := map[string]toldProblem{}
	for _, problem := range list {
		old, now := p.told[problem.Object], current[problem.Object]
		line := problem.String()
		if !slices.Contains(old.lines, line) && !slices.Contains(now.lines, line) {
			p.say(problem.Kind, line)
		}
		now.lines, now.well, now.since = append(now.lines, line), problem.Well, old.since
		if now.since.IsZero() {
			now.since = p.now()
		}
		now.kind = problem.Kind
		current[problem.Object] = now
	}
	for object, t := range current {
		p.told[object] = t
	}
}

// say writes one line, unless there have been very many about bad input.
func (p *problemLog) say(kind model.ProblemKind, line string) {
	if kind == model.BadInput {
		if now := p.now(); now.Sub(p.window) >= linesWindow {
			p.window, p.lines = now, 0
		}
		if p.lines++; p.lines == mostLines+1 {
			p.log.Warn("log limit for bad input reached; further problems are only counted: see the metric fairlead_problems", "lines", mostLines, "within", linesWindow)
		}
		if p.lines > mostLines {
			return
		}
	}
	p.log.Warn(prefixOf(kind) + line)
}

func prefixOf(k model.ProblemKind) string {
	if k == model.BadInput {
		return "bad input: "
	}
	return ""
}

// tellProblems logs new problems and counts the current ones.
func (f *follower) tellProblems(list []model.Problem, well []string) {
	f.problems.tell(list, well)
	if len(list)+len(well) > 0 {
		kinds := map[string]int{}
		for object, t := range f.problems.told {
			kind, _, _ := strings.Cut(strings.ToLower(object), " ")
			if t.kind == model.Unavailable {
				kind = "source"
			}
			kinds[kind]++
		}
		f.a.metrics.Problems(kinds)
		f.a.memory.tell(f.problems.told)
		f.a.reportFolder()
	}
}

// tellQuarantine reports the Services that the kernel refused, in the log and as an
// Event on the Service.
func (f *follower) tellQuarantine(list []engine.Quarantined) {
	for _, q := range list {
		f.a.log.Error("Service quarantined: the kernel rejected its rules; other Services are unaffected", "service", q.Service, "objects", q.Objects, "error", q.Err)
		if f.a.recorder != nil && q.Service != (model.ServiceKey{}) {
			f.a.recorder.Warn(q.Service, "ProxyRulesRefused", "the kernel of this node rejected "+strings.Join(q.Objects, ", ")+": "+q.Err.Error())
		}
	}
}

// nodePorts returns where NodePorts answer; nil where userspace mode answers on loopback addresses alone.
func (a *agent) nodePorts(v model.NodeView) *inspect.NodePorts {
	if a.rootless != nil && !a.rootless.plan.Own {
		return nil
	}
	return inspect.NodePortsOf(&v)
}

// tellNodePorts logs where NodePorts answer and why, when that changes.
func (f *follower) tellNodePorts(v model.NodeView) {
	n := f.a.nodePorts(v)
	if n == nil {
		return
	}
	if line := n.Where() + " (" + n.By + ")"; line != f.nodePorts {
		f.nodePorts = line
		f.a.log.Info("NodePorts: " + line)
	}
}
