package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/control"
	"github.com/fairlead/fairlead/internal/dataplane/ipvs"
	"github.com/fairlead/fairlead/internal/dataplane/nftables"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/kernel/sysctl"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/takeover"
)

const (
	// engineLimit is how long an answer waits for the engine to be between two syncs.
	engineLimit = 3 * time.Second
	// statusLimit is the same for status, which works without the engine's state.
	statusLimit = 200 * time.Millisecond
)

// inspection handles the requests of commands to this agent. Its methods run on the
// goroutines of a server. It owns a netlink socket, so that the engine's socket never
// waits for a request.
type inspection struct {
	a       *agent
	version string
	since   time.Time

	mu     sync.Mutex // guards kernel
	kernel *nft.Conn  // nil: not opened yet, or there is no nf_tables

	audits auditor
	flows  flowLooks
	live   tracing
}

func newInspection(a *agent, version string) *inspection {
	return &inspection{a: a, version: version, since: time.Now(), audits: auditor{last: map[bool]*inspect.Audit{}}}
}

// serve registers the handlers with the control socket.
func (i *inspection) serve(s *control.Socket) {
	s.Handle("GET /status", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control.Answer(w, i.status(r.Context()))
	}))
	s.Handle("GET /explain", http.HandlerFunc(i.explain))
	s.Handle("GET /trace", http.HandlerFunc(i.trace))
	s.Handle("GET /audit", http.HandlerFunc(i.audit))
}

// status returns the agent's status. It reads memory, a few files of /proc and one list of tables.
func (i *inspection) status(ctx context.Context) *inspect.Status {
	a := i.a
	s := &inspect.Status{Version: i.version, Mode: a.cfg.Mode, ModeBy: a.cfg.ModeBy, Place: a.place, Node: a.cfg.NodeName, PID: os.Getpid(), Since: i.since, Now: time.Now(), Limits: a.caps.Notes}
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	var services, slices, pending int
	var waiting []string
	err := a.engine.Inspect(ctx, func(v engine.View) {
		services, slices, _ = v.State().Counts()
		pending, waiting = v.Pending(), v.Waiting()
		s.NodePorts = a.nodePorts(v.Node())
		for _, h := range v.Held() {
			s.Refused = append(s.Refused, inspect.RefusedOf(h))
		}
	})
	s.Changed = a.migration.changed()
	a.memory.fill(s) // after the engine has reported its last sync
	if a.rootless != nil {
		for _, u := range a.rootless.driver.Unopened() {
			s.Troubled++
			s.Problems = lowest(s.Problems, fmt.Sprintf("Service %s is not served at %s: %v; retried every 5 s", u.Service, u.At, u.Err))
		}
	}
	s.Source = a.sourceOf(s.Source.Err)
	s.Source.Waiting = waiting
	if s.Kernel.Healthy, s.Kernel.Busy = a.health.Healthy(), err != nil; !s.Kernel.Busy {
		s.Services, s.Slices, s.Kernel.Pending = services, slices, pending
	}
	s.Flows = readFlows()
	s.Offload = a.offloadOf()
	other := a.otherProxy(whole)
	if other != "" {
		s.Troubled++
		s.Problems = append([]string{other}, s.Problems...)
	}
	if s.Also, err = i.strangers(whole, other != ""); err != nil {
		s.Troubled++
		s.Problems = append(s.Problems, "cannot check for rules of another proxy: "+err.Error())
	}
	s.Noted = a.memory.notes.Summary(3)
	s.History = a.memory.history.History(s.Now)
	return s
}

// explain answers /explain?q=SUBJECT&namespace=NS&from=IP&flows=true.
func (i *inspection) explain(w http.ResponseWriter, r *http.Request) {
	ask, err := i.questionOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, err := i.explanation(r.Context(), ask)
	if err != nil {
		busy(w)
		return
	}
	if r.URL.Query().Get("flows") == "true" && out.Service != "" {
		i.countFlows(r.Context(), out)
	}
	control.Answer(w, out)
}

// trace answers /trace, with the query of /explain and live=DURATION.
func (i *inspection) trace(w http.ResponseWriter, r *http.Request) {
	ask, err := i.questionOf(r)
	if err == nil && !ask.From.IsValid() {
		err = errors.New("from: the source address of the trace is missing")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var out inspect.Trace
	if !i.inspect(w, r, func(v engine.View) { out, err = inspect.Simulate(ask, v) }) {
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if wait, err := time.ParseDuration(r.URL.Query().Get("live")); err == nil {
		wait = min(max(wait, 0), maxLive)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + engineLimit))
		if err := i.follow(r.Context(), ask, wait, &out); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	control.Answer(w, &out)
}

// question returns the Question for a text, with what depends on this agent's mode.
func (i *inspection) question(text string, subject inspect.Subject) inspect.Question {
	ask := inspect.Question{Text: text, Subject: subject, Device: link.Device, DropsStrays: i.a.caps.DropsStrays, OwnsAddresses: i.a.caps.OwnsAddresses, Offload: i.a.offloadOf(),
		OnlyProxied: !i.a.readsHeadless()}
	if i.a.cfg.Mode == ipvs.Name {
		ask.Scheduler = cmp.Or(i.a.cfg.IPVS.Scheduler, ipvs.DefaultScheduler)
	}
	if i.a.rootless != nil {
		ask.Answered, ask.Asked = i.a.rootless.plan.Sockets, i.a.rootless.plan.Asked
	}
	return ask
}

func (i *inspection) questionOf(r *http.Request) (inspect.Question, error) {
	q := r.URL.Query()
	subject, err := inspect.ParseSubject(q.Get("q"), q.Get("namespace"))
	ask := i.question(q.Get("q"), subject)
	if from := q.Get("from"); err == nil && from != "" {
		ask.From, err = netip.ParseAddr(from)
		ask.From = ask.From.Unmap().WithZone("")
	}
	if to := subject.To.Addr(); err == nil && ask.From.IsValid() && to.IsValid() && model.FamilyOf(to) != model.FamilyOf(ask.From) {
		err = fmt.Errorf("from %s to %s: the addresses are of different families", ask.From, subject.To)
	}
	return ask, err
}

// inspect runs f between two syncs of the engine. If it cannot, it answers with an error and returns false.
func (i *inspection) inspect(w http.ResponseWriter, r *http.Request, f func(engine.View)) bool {
	ctx, cancel := context.WithTimeout(r.Context(), engineLimit)
	defer cancel()
	if err := i.a.engine.Inspect(ctx, f); err != nil {
		busy(w)
		return false
	}
	return true
}

func busy(w http.ResponseWriter) {
	http.Error(w, "the engine is busy and has not answered within "+engineLimit.String()+": try again", http.StatusServiceUnavailable)
}

// strangers returns the tables of other proxies in nftables, and none where the kernel has no
// nf_tables (iptables-legacy) or the agent may not read them (userspace mode without privilege).
// Table handles increase, so they show which table was created, and hooked, later. runs reports
// whether another proxy runs.
func (i *inspection) strangers(ctx context.Context, runs bool) ([]inspect.Stranger, error) {
	list, err := i.tables(ctx)
	switch {
	case nftables.Unsupported(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	theirs, ours := map[string]uint64{}, uint64(0)
	for n := range list {
		switch t := &list[n]; {
		case i.ours(t):
			ours = max(ours, t.Handle)
		case t.Ref.Name == "kube-proxy":
			theirs[t.Ref.String()] = t.Handle
		}
	}
	return strangersAmong(theirs, ours, runs), nil
}

// tables reads the tables of nftables.
func (i *inspection) tables(ctx context.Context) ([]nft.Table, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	k, err := i.socket()
	if err != nil {
		return nil, err
	}
	return k.Tables(ctx)
}

// ours reports whether t holds the rules of this mode that translate destinations. In the other
// modes no table holds them, and their order cannot be derived from tables.
func (i *inspection) ours(t *nft.Table) bool {
	switch takeover.Place(i.a.place) {
	case takeover.NFTables:
		return nftables.IsOurs(t)
	case takeover.IPTablesNFT:
		return t.Ref.Name == "nat"
	}
	return false
}

// socket returns the netlink socket, and opens it if needed; the caller holds mu.
func (i *inspection) socket() (*nft.Conn, error) {
	if i.kernel == nil {
		k, err := nft.Open(nft.Config{})
		if err != nil {
			return nil, err
		}
		i.kernel = k
	}
	return i.kernel, nil
}

// close closes the netlink socket.
func (i *inspection) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.kernel != nil {
		_ = i.kernel.Close()
		i.kernel = nil
	}
}

// readFlows returns how full conntrack is; nil if the kernel does not report it.
func readFlows() *inspect.Flows {
	read := func(name string) (uint64, bool) {
		text, err := sysctl.New().Get("net/netfilter/" + name)
		n, bad := strconv.ParseUint(text, 10, 64)
		return n, err == nil && bad == nil
	}
	var f inspect.Flows
	var some, limit bool
	f.Count, some = read("nf_conntrack_count")
	f.Max, limit = read("nf_conntrack_max")
	if !some || !limit {
		return nil
	}
	if text, err := os.ReadFile("/proc/thread-self/net/stat/nf_conntrack"); err == nil {
		f.InsertFailed, f.Dropped = sumStat(string(text), "insert_failed"), sumStat(string(text), "drop")
	}
	return &f
}

// sumStat adds up one column of a statistics file, which has a line for each CPU.
func sumStat(text, column string) (sum uint64) {
	at := -1
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if at < 0 {
			for n, w := range words {
				if w == column {
					at = n
				}
			}
			if at < 0 {
				return 0
			}
			continue
		}
		if at < len(words) {
			n, _ := strconv.ParseUint(words[at], 16, 64)
			sum += n
		}
	}
	return sum
}
