package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/choose"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/control"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/internal/takeover"
)

const (
	// verifyLimit is how long a new mode has until its rules are in and verified.
	verifyLimit = 2 * time.Minute
	// planLimit bounds the answer of a dry run, in which modes are tried.
	planLimit = 2 * tryLimit
)

// migration changes the mode of a running agent.
type migration struct {
	a *agent
	// load reads the settings again for another mode.
	load  func(place string) (*config.Config, error)
	asked string // the mode of the settings
	told  *modeChange
	order chan *modeChange // size 1: there is one change at most
	done  chan struct{}    // closed once the new rules are verified

	verified sync.Once // closes done

	mu sync.Mutex // one plan at a time: the settings are read, and modes tried
}

func newMigration(a *agent, l *launch) *migration {
	return &migration{a: a, load: l.load, asked: l.asked, told: l.told, order: make(chan *modeChange, 1), done: make(chan struct{})}
}

// serve registers the handlers with the control socket.
func (m *migration) serve(s *control.Socket) {
	s.Handle("GET /migrate", http.HandlerFunc(m.answer))
	s.Handle("POST /migrate", http.HandlerFunc(m.answer))
}

func (m *migration) answer(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(planLimit + engineLimit))
	ctx, cancel := context.WithTimeout(r.Context(), planLimit)
	defer cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	plan, err := m.plan(ctx, r.URL.Query().Get("to"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.Method == http.MethodGet {
		control.Answer(w, plan)
		return
	}
	if plan.Cannot != "" {
		http.Error(w, plan.Cannot, http.StatusConflict)
		return
	}
	control.Answer(w, plan)
	_ = http.NewResponseController(w).Flush() // the caller has the answer before the agent, and with it the socket, ends
	select {
	case m.order <- &modeChange{To: plan.To, From: plan.From, At: time.Now()}:
	default:
	}
}

// wait ends the agent when a change is asked for.
func (m *migration) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case c := <-m.order:
		m.a.log.Info("changing the mode: the old rules stay active until the new ones are in the kernel", "from", c.From, "to", c.To)
		return c
	}
}

// watch ends an agent whose new mode is not verified within verifyLimit.
func (m *migration) watch(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-m.done:
		m.a.log.Info("changed the mode: the new rules are in the kernel and verified", "from", m.told.From, "to", m.told.To)
	case <-time.After(verifyLimit):
		return fmt.Errorf("new rules not verified in the kernel after %s: %s", verifyLimit, orNothing(m.a.memory.lastError()))
	}
	return nil
}

func orNothing(s string) string {
	if s == "" {
		return "no error; the list of Services may be incomplete"
	}
	return s
}

// verify compares the rules with the kernel until nothing is missing: only then
// may rules of other proxies and modes be removed, at the start and later. The engine itself repairs what is missing. A start
// that has nothing to remove needs no comparison.
func (m *migration) verify(ctx context.Context, toRemove bool) error {
	return m.compare(ctx, toRemove, m.a.engine.Audit)
}

// compare repeats audit until it reports neither a missing nor a different object.
func (m *migration) compare(ctx context.Context, toRemove bool, audit func(context.Context) (engine.Audited, error)) error {
	for toRemove || m.told.underWay() {
		found, err := audit(ctx)
		if err != nil {
			return err
		}
		if found.Missing+found.Different == 0 {
			break
		}
		m.a.log.Warn("rules in the kernel are incomplete: the rules of other proxies and modes stay until they are complete", "missing", found.Missing, "different", found.Different)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	m.verified.Do(func() { close(m.done) })
	return nil
}

// changed returns the change of mode for status; nil if there was none.
func (m *migration) changed() *inspect.Changed {
	if m.told == nil {
		return nil
	}
	c := inspect.Changed{From: m.told.From, To: m.told.To, At: m.told.At, Failed: m.told.Failed}
	select {
	case <-m.done:
		c.Verified = true
	default:
	}
	return &c
}

// plan returns what a change would do. An error means that the request is invalid.
func (m *migration) plan(ctx context.Context, to string) (*inspect.Migration, error) {
	t := &trial{cfg: m.a.cfg}
	if to == auto {
		fresh, err := choose.Mode(choose.Question{Try: func(mode string) choose.Try { return t.try(ctx, mode) }})
		if err != nil {
			return nil, err
		}
		to = fresh.Mode
	}
	if !slices.Contains(choose.Modes(""), to) {
		return nil, fmt.Errorf("--to %q: must be auto or one of %v", to, choose.Modes(""))
	}
	p := &inspect.Migration{From: m.a.place, To: to}
	cfg, err := m.load(to)
	if p.Cannot = m.obstacle(ctx, p, err); p.Cannot != "" {
		return p, nil
	}
	t.cfg = cfg
	if tried := t.try(ctx, to); !tried.Works {
		p.Cannot = fmt.Sprintf("mode %s does not work here: %s", to, tried.Why)
		return p, nil
	}
	if err := m.fill(ctx, p, cfg); err != nil {
		p.Cannot = err.Error()
	}
	return p, nil
}

// obstacle returns why a change cannot be done; "" if only trying the mode can show it.
func (m *migration) obstacle(ctx context.Context, p *inspect.Migration, settings error) string {
	switch {
	case p.To == p.From:
		return "the agent already runs in this mode"
	case settings != nil:
		return "the settings do not allow this mode: " + oneLine(settings)
	case p.To == choose.Userspace:
		return "userspace mode removes no rules, and the rules of " + p.From + " would intercept connections to Services: stop the agent, run fairlead cleanup, start it with --proxy-mode userspace"
	case m.a.cfg.NoTakeover:
		return "the agent runs with --no-takeover: the rules of the old mode would stay"
	}
	return ""
}

// fill adds to the plan what would be done.
func (m *migration) fill(ctx context.Context, p *inspect.Migration, cfg *config.Config) error {
	kernels, err := openKernels()
	if err != nil {
		return err
	}
	defer closeKernels(kernels)
	found, err := kernels.Find(ctx, takeover.Fairlead)
	if err != nil {
		return err
	}
	for i := range found {
		if string(found[i].Place) != p.To {
			p.Removes = append(p.Removes, found[i].String())
		}
	}
	affinity := 0
	err = m.a.engine.Inspect(ctx, func(v engine.View) {
		for k := range v.State().Keys() {
			if svc, _ := v.State().Service(k); svc != nil && svc.AffinityTimeout > 0 {
				affinity++
			}
		}
	})
	if err != nil {
		return errors.New("the engine is busy: try again")
	}
	m.say(p, cfg, affinity)
	return nil
}
