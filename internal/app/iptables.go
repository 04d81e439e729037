package app

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/dataplane/iptables"
	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/nfacct"
	"github.com/fairlead/fairlead/internal/takeover"
)

// detectLimit bounds the detection of the backend that the host uses.
const detectLimit = 30 * time.Second

// openIPTables opens the configured backend, or the one that the host uses.
func openIPTables(ctx context.Context, cfg *config.Config) (opened, error) {
	backend := kernel.Backend(cfg.IPTablesBackend)
	if backend == "" {
		ctx, cancel := context.WithTimeout(ctx, detectLimit)
		defer cancel()
		var err error
		if backend, err = kernel.Detect(ctx); err != nil {
			return opened{}, err
		}
	}
	k, err := openBackend(backend)
	if err != nil {
		return opened{}, err
	}
	count := kernel.NewCounter(withRestoreFaults(k))
	p := iptables.Params{Kernel: count, TCPBeLiberal: cfg.Conntrack.TCPBeLiberal, AuditPeriod: cfg.SyncPeriod,
		Contended: k.Contended, Log: newLogger(cfg.Logging).Logger}
	closers := []func() error{k.Close}
	if counters, err := nfacct.Open(nfacct.Config{}); err == nil {
		p.Counters = counters
		closers = append(closers, counters.Close)
	} else {
		p.Log.Warn("packets are not counted", "error", err) // as in kube-proxy, no reason not to start
	}
	reads := func() int { c := count.Counts(); return int(c.Reads + c.Stamps) }
	d := iptables.New(p)
	out := opened{driver: d, reads: reads, place: takeover.PlaceOf(backend), observe: d.Observe, closers: closers}
	if cfg.ServiceMetrics > 0 {
		out.readRefusalsOfIPTables(k)
	}
	if cfg.Offload.Threshold > 0 {
		out.besideIPTables(ctx, cfg, d, p.Log)
	}
	return out, nil
}

func openBackend(b kernel.Backend) (*kernel.Conn, error) {
	programs, err := kernel.Installed(b)
	if err != nil {
		return nil, fmt.Errorf("iptables backend %s: %w", b, err)
	}
	k, err := kernel.Open(kernel.Config{Backend: b, Programs: programs})
	if err != nil {
		return nil, fmt.Errorf("iptables backend %s: %w", b, err)
	}
	return k, nil
}
