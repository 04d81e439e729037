package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/iptables"
	"github.com/fairlead/fairlead/internal/dataplane/offload"
	"github.com/fairlead/fairlead/internal/fastpath"
	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/kernel/sysctl"
	"github.com/fairlead/fairlead/internal/model"
)

// beside puts the acceleration beside a driver; p has what depends on that driver.
func beside(ctx context.Context, d dataplane.Driver, cfg *config.Config, p offload.Params) *offload.Driver {
	log := newLogger(cfg.Logging).Logger
	p.Threshold, p.Include, p.Exclude, p.Log, p.Links = cfg.Offload.Threshold, cfg.Offload.Include, cfg.Offload.Exclude, log, upLinks
	p.Prepare = func() { _ = countFlows(log) } // what it says is logged
	test := func() error {
		ctx, stop := context.WithTimeout(ctx, selfTestLimit)
		defer stop()
		return fastpath.Test(ctx, fastpath.Params{})
	}
	if why := notAccelerated(release(), cfg.Offload.SelfTest, test, log); why != "" {
		p.Threshold, p.Off = 0, why
	}
	return offload.New(d, p)
}

// countFlows makes conntrack count packets, if it does not. It tells whether it does now.
func countFlows(log *slog.Logger) bool {
	ch := sysctl.CountFlows(sysctl.New())
	if ch != nil && ch.Err == nil {
		log.Info("set a sysctl: conntrack counts packets from now on; connections from before are not accelerated", "name", ch.Name, "from", ch.From, "to", ch.To)
	} else if ch != nil {
		logSysctls(log, []sysctl.Change{*ch})
	}
	return ch == nil || ch.Err == nil
}

// selfTestLimit bounds how long the start waits for packets.
const selfTestLimit = 15 * time.Second

// notAccelerated says why this kernel's fast path is not used; "" if it is. Whether it is tested before depends on what is known
// of the release, and on --offload-self-test.
func notAccelerated(release string, when config.SelfTest, test func() error, log *slog.Logger) string {
	doubt := offload.Suspicion(release)
	if when == config.SelfTestNever {
		return offload.Fault(release)
	}
	if when == config.SelfTestAuto && doubt == "" {
		return ""
	}
	err := test()
	var untestable *fastpath.UntestableError
	switch {
	case err == nil:
		log.Info("tested with packets: the kernel's fast path carries translated connections", "release", release)
		return ""
	case !errors.As(err, &untestable):
		return "tested with packets on this kernel, " + release + ": " + err.Error()
	case doubt == "":
		log.Warn("the kernel's fast path is not tested; it is assumed to work, for no fault of this release is known", "release", release, "error", err)
		return ""
	}
	return doubt + "; it is assumed to, for here it " + err.Error() + " (--offload-self-test=never goes without a test where no fault is known)"
}

// lookBeside opens the sockets by which what accelerates is looked at beside the engine: for explain, which without its own
// says nothing of it, and for audit, which without its own fails.
func (o *opened) lookBeside(p *offload.Params) {
	if k, err := nft.Open(nft.Config{}); err == nil {
		o.closers = append(o.closers, k.Close)
		p.Finder = k
	}
	if k, err := nft.Open(gently(true)); err == nil {
		o.closers = append(o.closers, k.Close)
		p.Reader = k
	}
}

// besideIPTables is for a driver that writes by programs: the acceleration has a socket of its own. Without nf_tables there
// is none.
func (o *opened) besideIPTables(ctx context.Context, cfg *config.Config, d *iptables.Driver, log *slog.Logger) {
	k, err := nft.Open(nft.Config{})
	if err != nil {
		log.Warn("connections to Services are not accelerated: cannot open a netlink socket to nftables", "error", err)
		return
	}
	p := offload.Params{Kernel: k, Flowtables: k.Flowtables, Wrote: func(g nft.Generation) { d.Beside(uint32(g)) }}
	o.lookBeside(&p)
	o.offload = beside(ctx, d, cfg, p)
	o.driver, o.closers = o.offload, append(o.closers, k.Close)
}

func upLinks() ([]model.Link, error) {
	list, err := link.Up()
	out := make([]model.Link, len(list))
	for i, l := range list {
		out[i] = model.Link{Name: l.Name, Index: l.Index, MTU: l.MTU}
	}
	return out, err
}

// accelerates reports whether connections are taken past the rules. Then a connection to an endpoint that is gone ends, as with
// --reset-gone-endpoints, on the fast path or not: one that is idle just then would be taken over again to where nobody is.
func (a *agent) accelerates() bool { return a.offload != nil && a.offload.Status().Threshold > 0 }

// offloadOf is what status says of the acceleration; nil: nobody asked for it.
func (a *agent) offloadOf() *inspect.Offload {
	switch {
	case a.offload != nil:
		st := a.offload.Status()
		return &inspect.Offload{Threshold: st.Threshold, Devices: st.Devices, Why: st.Why}
	case a.cfg.Offload.Why != "":
		return &inspect.Offload{Why: a.cfg.Offload.Why}
	}
	return nil
}

// removeLimit bounds how long the start waits for removeOffload.
const removeLimit = 10 * time.Second

// removeOffload removes what an earlier run with acceleration has left, where this one has none.
func removeOffload(ctx context.Context, log *slog.Logger) {
	ctx, stop := context.WithTimeout(ctx, removeLimit)
	defer stop()
	k, err := nft.Open(nft.Config{})
	if err != nil {
		return // then there is nothing of ours
	}
	if err := offload.Remove(ctx, k); err != nil {
		log.Warn("connections may still be accelerated as an earlier run had it", "error", err)
	}
	_ = k.Close()
}
