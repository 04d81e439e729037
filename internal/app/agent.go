package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/conntrack"
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/offload"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/handover"
	"github.com/fairlead/fairlead/internal/health"
	"github.com/fairlead/fairlead/internal/kernel/sysctl"
	"github.com/fairlead/fairlead/internal/localhost"
	"github.com/fairlead/fairlead/internal/mailbox"
	"github.com/fairlead/fairlead/internal/metrics"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/node"
	"github.com/fairlead/fairlead/internal/source/k8s"
)

// agent is the graph of all components, built and not yet running.
type agent struct {
	cfg        *config.Config
	log        logger
	place      string // the mode with the backend of iptables
	driver     dataplane.Driver
	reads      func() int
	caps       dataplane.Caps
	mail       *mailbox.Mailbox
	engine     *engine.Engine
	metrics    *metrics.Metrics
	health     *health.Tracker
	service    *health.ServiceHealth
	shelf      handover.Shelf // of the servers
	follow     *follower
	memory     *memory
	inspection *inspection
	migration  *migration
	// recorder writes Events to the API server; nil with a folder of manifests.
	recorder *k8s.Recorder
	events   *serviceEvents    // nil like recorder
	status   func() k8s.Status // of the watch; nil with a folder of manifests
	names    *mailbox.Mailbox  // the DNS server's; nil if there is none
	// conntrack is nil where the kernel has none.
	conntrack  *conntrack.Cleaner
	unanswered *unanswered          // nil like conntrack
	traffic    *serviceTraffic      // nil without --service-metrics
	localhost  *localhost.Listeners // nil without IPv6
	loopback   *localhost.Listeners // the same on 127.0.0.1, in ipvs mode only
	rootless   *rootless            // nil but in userspace mode
	offload    *offload.Driver      // nil where connections are not accelerated
	waker      *waker               // nil like offload
	tasks      []task
}

// task is one goroutine of the agent: it ends when ctx does; an error ends the
// agent.
type task struct {
	name string
	run  func(context.Context) error
	// late: the task listens at the predecessor's addresses, and begins when the predecessor has ended.
	late bool
}

// newAgent builds the graph. A SIGTERM during that ends ctx, and with it the retries of
// the probe of the kernel.
func newAgent(ctx context.Context, cfg *config.Config, log logger, l *launch) (*agent, error) {
	a := &agent{cfg: cfg, log: log, mail: mailbox.New(), memory: newMemory()}
	plane, err := openDriver(ctx, cfg)
	if err != nil {
		return nil, err
	}
	a.driver, a.reads, a.rootless, a.place = plane.driver, plane.reads, plane.rootless, cmp.Or(string(plane.place), cfg.Mode)
	if a.offload = plane.offload; a.offload == nil && a.rootless == nil {
		removeOffload(ctx, log.Logger)
	}
	if a.caps, err = probe(ctx, a.driver, log.Logger); err != nil {
		return nil, fmt.Errorf("proxy mode %s: %w", cfg.Mode, err)
	}
	for _, n := range a.caps.Notes {
		log.Warn(n)
	}
	a.metrics = metrics.New(metrics.Params{Mode: cfg.Mode, Families: a.caps.Families, Version: l.version, Commit: commit(debug.ReadBuildInfo()),
		Gates: cfg.FeatureGates, Now: time.Now, Waiting: func() (services, slices int) { w := a.mail.Waiting(); return w.Services, w.Slices }})
	if plane.observe != nil {
		plane.observe(a.metrics)
	}
	a.health = health.NewTracker(health.TrackerParams{Families: a.caps.Families, Timeout: 2 * cfg.SyncPeriod,
		Waiting: func() time.Time { return a.mail.Waiting().Oldest }, Now: time.Now})
	a.service = health.NewServiceHealth(health.ServiceHealthParams{Families: a.caps.Families, Healthy: a.health.Healthy,
		OnBindError: a.onHealthPortError, Listen: a.listen, Log: log.Logger})
	sources, err := a.addSource(l.version)
	if err != nil {
		return nil, err
	}
	if err := a.addDNS(sources[0]); err != nil {
		return nil, err
	}
	a.follow = newFollower(a)
	a.engine = engine.New(engine.Params{
		Driver: a.driver, Families: a.caps.Families, Mailbox: a.mail, View: a.viewInputs(), NodeName: cfg.NodeName,
		Sources: sources, MinSync: cfg.MinSyncPeriod, Audit: auditPeriod(cfg), Log: log.Logger, OnTurn: a.follow.turn, BeforeWrite: a.follow.aboutToWrite,
		ChunkOps: a.caps.ChunkOps, Pace: a.caps.Pace, MaxBackends: a.caps.MaxBackends, Inert: a.caps.Inert, Unsupported: a.caps.Unsupported, OneList: a.caps.OneList,
	})
	a.migration = newMigration(a, l)
	a.inspection = newInspection(a, l.version)
	a.addServers()
	if err := a.addBeside(&plane); err != nil {
		return nil, err
	}
	a.add("host addresses", func(ctx context.Context) error {
		return node.New(a.nodeConfig()).Run(ctx, a.put)
	})
	a.addLate("health check node ports", a.service.Run)
	a.add("engine", a.engine.Run)
	a.add("change of mode", a.migration.wait)
	if l.told.underWay() {
		a.add("new mode", a.migration.watch)
	}
	if cfg.File != "" {
		a.add("config file", func(ctx context.Context) error {
			return watchConfig(ctx, configWatch{path: cfg.File, read: cfg.FileDigest, check: checkConfig, log: log.Logger})
		})
	}
	return a, nil
}

// addBeside adds the tasks that work next to the data plane: those that use the kernel, or
// what userspace mode has instead.
func (a *agent) addBeside(plane *opened) error {
	if a.rootless != nil {
		a.addLeftovers()
		a.addHandover()
		return a.addUserspace()
	}
	a.addConntrack()
	a.addUnanswered()
	a.addAffinity()
	a.countOffload()
	a.addWaker()
	a.countServices(plane.refusals)
	a.addLocalhost()
	a.addTakeover(plane.place)
	return nil
}

// probeLimit bounds how long the agent retries the probe of the kernel.
const probeLimit = time.Minute

// probe retries for as long as ctx lasts when the failure may pass: the kernel was busy
// or out of memory, a file system is not mounted yet. It logs each new reason, and returns
// the last one that is not the end of ctx.
func probe(ctx context.Context, d dataplane.Driver, log *slog.Logger) (dataplane.Caps, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	var reason error
	for {
		caps, err := d.Probe(ctx)
		if err == nil || errors.Is(err, dataplane.ErrUnsupported) || errors.Is(err, dataplane.ErrNotOurs) {
			return caps, err
		}
		if reason == nil || ctx.Err() == nil && err.Error() != reason.Error() {
			reason = err
			if ctx.Err() == nil {
				log.Warn("cannot probe the kernel; trying again", "error", err, "for", probeLimit)
			}
		}
		select {
		case <-ctx.Done():
			return caps, reason
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (a *agent) add(name string, run func(context.Context) error) {
	a.tasks = append(a.tasks, task{name: name, run: run})
}

func (a *agent) addLate(name string, run func(context.Context) error) {
	a.tasks = append(a.tasks, task{name: name, run: run, late: true})
}

// put hands a source's event to the engine; any goroutine may call it.
func (a *agent) put(ev model.Event) {
	now := time.Now()
	if ev.Received.IsZero() {
		ev.Received = now
	}
	if ev.Service != nil || ev.Slice != nil {
		a.metrics.Queued(sliceFamily(&ev), now)
	}
	a.mail.Put(ev)
	if a.names != nil {
		a.names.Put(a.forNames(ev))
	}
}

// run works until ctx ends (SIGTERM) or a task fails. The rules stay in place:
// Services continue to work, and the next start writes only what has changed since.
func (a *agent) run(ctx context.Context) error {
	logSysctls(a.log.Logger, a.prepareKernel())
	a.log.Info("starting", "mode", a.cfg.Mode, "node", a.cfg.NodeName, "families", fmt.Sprint(a.caps.Families))
	a.tellLacks()
	a.giveBack(ctx)
	g, tasks := errgroup.WithContext(ctx)
	for _, t := range a.tasks {
		g.Go(func() error {
			if t.late && !a.mayListen(tasks) {
				return nil
			}
			if err := t.run(tasks); err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			return nil
		})
	}
	err := g.Wait()
	if errors.Is(err, errHandedOver) {
		a.drain(ctx)
		return nil
	}
	if a.rootless != nil {
		a.log.Info("stopped; Services are refused until the next start")
		return err
	}
	a.log.Info("stopped; the rules stay in place")
	return err
}

// prepareKernel sets the sysctls that kube-proxy sets.
func (a *agent) prepareKernel() []sysctl.Change {
	if a.rootless != nil {
		return nil // this mode may not set them
	}
	setOOMScore(a.cfg.OOMScoreAdj, a.log.Logger)
	return applySysctls(a.cfg)
}

// sliceFamily returns the family of an EndpointSlice; 0 if it may be both.
func sliceFamily(ev *model.Event) model.Family {
	if ev.Slice == nil || ev.Slice.Value == nil {
		return 0
	}
	return ev.Slice.Value.Family
}

// commit returns the commit that the binary was built from, as recorded by the Go command.
func commit(info *debug.BuildInfo, ok bool) string {
	if !ok {
		return "unknown"
	}
	revision, dirty := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	return revision + dirty
}

// auditPeriod returns the period of audits: an audit, even without a notification of drift, happens
// at least each hour, or each sync period when that is longer.
func auditPeriod(cfg *config.Config) time.Duration {
	return max(cfg.SyncPeriod, time.Hour)
}
