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

// beside returns a driver that adds acceleration to d; p holds what depends on d.
func beside(ctx context.Context, d dataplane.Driver, cfg *config.Config, p offload.Params) *offload.Driver {
	log := newLogger(cfg.Logging).Logger
	p.Threshold, p.Include, p.Exclude, p.Log, p.Links = cfg.Offload.Threshold, cfg.Offload.Include, cfg.Offload.Exclude, log, upLinks
	p.Prepare = func() { _ = countFlows(log) } // it logs its result itself
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

// countFlows ensures that conntrack counts packets. It reports whether conntrack counts now.
func countFlows(log *slog.Logger) bool {
	ch := sysctl.CountFlows(sysctl.New())
	if ch != nil && ch.Err == nil {
		log.Info("set a sysctl: conntrack counts packets from now on; existing connections are not accelerated", "name", ch.Name, "from", ch.From, "to", ch.To)
	} else if ch != nil {
		logSysctls(log, []sysctl.Change{*ch})
	}
	return ch == nil || ch.Err == nil
}

// selfTestLimit bounds how long the start waits for the test's packets.
const selfTestLimit = 15 * time.Second

// notAccelerated returns why this kernel's fast path is not used; "" if it is used. Whether it is tested first depends on what is known
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
		log.Info("self-test passed: the kernel's fast path forwards translated connections", "release", release)
		return ""
	case !errors.As(err, &untestable):
		return "self-test failed on this kernel, " + release + ": " + err.Error()
	case doubt == "":
		log.Warn("cannot test the kernel's fast path; assuming that it works: no fault of this kernel release is known", "release", release, "error", err)
		return ""
	}
	return doubt + "; it is assumed to, for here it " + err.Error() + " (--offload-self-test=never skips the test on kernels without a known fault)"
}

// lookBeside opens the sockets that read the acceleration's objects concurrently with the engine: one for explain, which without it
// says nothing of acceleration, and one for audit, which fails without it.
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

// besideIPTables adds acceleration to a driver that writes by running programs: the acceleration has its own netlink socket. Without
// nf_tables there is no acceleration.
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

// accelerates reports whether connections bypass the rules. Then a connection to an endpoint that is gone is ended, as with
// --reset-gone-endpoints, on the fast path or not: an idle one would later be offloaded again to an endpoint that does not exist.
func (a *agent) accelerates() bool { return a.offload != nil && a.offload.Status().Threshold > 0 }

// offloadOf returns the state of the acceleration for status; nil: it is not configured.
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
		return // then there is nothing to remove
	}
	if err := offload.Remove(ctx, k); err != nil {
		log.Warn("cannot remove the acceleration of an earlier run; connections may still be accelerated", "error", err)
	}
	_ = k.Close()
}
