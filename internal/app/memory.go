package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
	"github.com/fairlead/fairlead/internal/takeover"
)

// memory is the state that `fairlead status` reports without asking the engine, which
// may be busy for seconds. The engine's goroutine writes, any goroutine reads.
type memory struct {
	mu       sync.Mutex
	kernel   inspect.InKernel
	repairs  inspect.Repairs
	services int
	slices   int
	problems []string // the first of them
	troubled int
	source   string            // why the source cannot be read; "" if it can
	servers  map[string]string // why a server does not listen, by its name
	foreign  string            // places where another proxy writes its rules again, separated by commas

	notes   *inspect.Notebook
	history inspect.Recorder
}

func newMemory() *memory { return &memory{notes: inspect.NewNotebook()} }

// turn records the result of a sync of the engine.
func (m *memory) turn(t *engine.Turn, first string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.services, m.slices, m.kernel.Pending = t.Services, t.Slices, t.Pending
	before := m.kernel.Err
	m.kernel.Err = ""
	if t.Err != nil {
		m.kernel.Err = t.Err.Error()
		m.history.Happen(t.Done, "write failed: "+m.kernel.Err)
		return
	}
	if before != "" {
		m.history.Happen(t.Done, "writes succeed again")
	}
	m.history.Turn(t.Done, t.Operations, t.Done.Sub(t.Started))
	for _, q := range t.Quarantined {
		m.history.Happen(t.Done, fmt.Sprintf("quarantined Service %s: the kernel rejected its rules: %v", q.Service, q.Err))
	}
	if t.Complete {
		m.kernel.Synced, m.kernel.Took = t.Done, t.Done.Sub(t.Started)
	}
	if t.Full {
		m.repairs.Audited = t.Done
	}
	if len(t.Drift) > 0 {
		m.repairs.Objects += len(t.Drift)
		m.repairs.Last, m.repairs.First = t.Done, first
		m.history.Happen(t.Done, fmt.Sprintf("repaired drift caused by another program: %d objects, such as %s", len(t.Drift), first))
	}
}

// audited records that the kernel was compared, and that the actual state equals the desired state.
func (m *memory) audited(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.repairs.Audited = at
}

// maxShown is how many problems status names.
const maxShown = 10

// tell replaces the recorded problems with the current ones.
func (m *memory) tell(told map[string]toldProblem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.source
	m.troubled, m.problems, m.source = 0, nil, ""
	for _, t := range told {
		for _, line := range t.lines {
			if t.kind == model.Unavailable {
				m.source = line
				continue
			}
			m.troubled++
			m.problems = lowest(m.problems, line)
		}
	}
	switch {
	case m.source == before:
	case m.source == "":
		m.history.Happen(time.Now(), "the source is available again")
	default:
		m.history.Happen(time.Now(), m.source)
	}
}

// listening records why a server does not listen; nil: it does.
func (m *memory) listening(server string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.servers, server)
		return
	}
	if m.servers == nil {
		m.servers = map[string]string{}
	}
	m.servers[server] = err.Error()
}

// rewrites records the places where another proxy writes its rules again.
func (m *memory) rewrites(places []takeover.Place) {
	names := make([]string, len(places))
	for i, p := range places {
		names[i] = string(p)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.foreign = strings.Join(names, ", ")
}

// rewritten returns what rewrites recorded last.
func (m *memory) rewritten() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.foreign
}

// unreadable returns why the source cannot be read; "" if it can.
func (m *memory) unreadable() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.source
}

// lowest inserts line into the sorted list, and keeps the first maxShown lines.
func lowest(list []string, line string) []string {
	at, _ := slices.BinarySearch(list, line)
	if at >= maxShown {
		return list
	}
	list = slices.Insert(list, at, line)
	return list[:min(len(list), maxShown)]
}

// fill copies the state into a Status.
func (m *memory) fill(s *inspect.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.Kernel, s.Repairs, s.Services, s.Slices = m.kernel, m.repairs, m.services, m.slices
	s.Problems, s.Troubled, s.Source.Err = slices.Clone(m.problems), m.troubled, m.source
	s.NotListening = slices.Sorted(maps.Values(m.servers))
}

// tellNoted logs policy's notes on Services, once when they change, and updates their counts.
func (f *follower) tellNoted(decided []engine.Decided) {
	changed := false
	for i := range decided {
		d := &decided[i]
		news, counts := f.a.memory.notes.Set(d.Key, d.Result.Notes)
		changed = changed || counts
		for _, n := range news {
			level := levelOf(n.Kind)
			if f.noted.worth(n) && f.a.log.Enabled(context.Background(), level) && f.noted.may(f.a.log.Logger, time.Now()) {
				f.a.log.Log(context.Background(), level, "noted: "+n.Text, "service", d.Key, "port", n.Port, "family", n.Family, "reason", n.Kind)
			}
		}
	}
	if !changed {
		return
	}
	counts := map[string]int{}
	for kind, n := range f.a.memory.notes.Counts() {
		counts[kind.String()] = n
	}
	f.a.metrics.ServicesNoted(counts)
}

// remember records the result of a sync for status.
func (f *follower) remember(t *engine.Turn) {
	first := ""
	if len(t.Drift) > 0 {
		first = f.name(t.Drift[0].Key)
	}
	f.a.memory.turn(t, first)
}

// noteLog limits the log lines about notes: a node may start with ten thousand Services that
// have notes.
type noteLog struct {
	window time.Time
	lines  int
}

// worth reports whether a note is logged. Lost claims are reported as a Problem, and hints
// that are followed are the normal case.
func (noteLog) worth(n policy.Note) bool {
	return n.Kind != policy.ClaimLost && n.Kind != policy.HintsUsed
}

// levelOf returns the level at which a note is logged. A new Service has no endpoints for a
// moment, and one in a rollout no ready ones, so those notes have the lower level.
func levelOf(k policy.NoteKind) slog.Level {
	if k == policy.NoEndpoints || k == policy.NotReady || k == policy.OnlyEnding {
		return levelTurn
	}
	return slog.LevelInfo
}

// may reports whether one more line may be written now.
func (l *noteLog) may(log *slog.Logger, now time.Time) bool {
	if now.Sub(l.window) >= linesWindow {
		l.window, l.lines = now, 0
	}
	if l.lines++; l.lines == mostLines+1 {
		log.Info("log limit for notes reached; further notes are only counted: see the metric fairlead_services_noted, and fairlead explain", "lines", mostLines, "within", linesWindow)
	}
	return l.lines <= mostLines
}

// sourceOf returns the current state of the source of the Services.
func (a *agent) sourceOf(err string) inspect.Source {
	if a.status == nil {
		return inspect.Source{Name: "folder " + a.cfg.Manifests, Connected: err == "", Err: err}
	}
	s := a.status()
	out := inspect.Source{Name: "API server", Connected: s.Connected, LastHeard: s.LastHeard, Since: s.Since, Err: s.Err}
	return out
}

// strangersAmong returns the tables of other proxies; tables maps their names to their handles. ours is the
// handle of the agent's own table; 0: it has none. While the other proxy runs there is no advice to remove its tables.
func strangersAmong(tables map[string]uint64, ours uint64, runs bool) (out []inspect.Stranger) {
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		s := inspect.Stranger{What: "table " + name, Wins: ours > 0 && tables[name] > ours, Unsure: ours == 0}
		if strings.HasSuffix(name, " kube-proxy") {
			s.What += " (rules of kube-proxy)"
			if !runs {
				s.Remove = "fairlead cleanup --kube-proxy"
			}
		}
		out = append(out, s)
	}
	return out
}

// lastError returns the error of the last write; "" if it succeeded.
func (m *memory) lastError() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kernel.Err
}
