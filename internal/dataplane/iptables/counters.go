package iptables

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/nfacct"
)

// The kernel's counters that rules feed, with kube-proxy's names. Both families
// share them.
const (
	invalidCounter   = "ct_state_invalid_dropped_pkts"
	localhostCounter = "localhost_nps_accepted_pkts"
)

var counters = [...]string{invalidCounter, localhostCounter}

// Matches that feed a counter; iptables-save prints two blanks.
const (
	countInvalid = "-m nfacct --nfacct-name  " + invalidCounter
	countLocal   = "-m nfacct --nfacct-name  " + localhostCounter
)

// toLocalhost stands at the head of the chains for outside addresses, which a
// packet reaches only when it is accepted: one rule for a Service port, where
// kube-proxy has a second one for each NodePort, which all others would walk past.
const toLocalhost = "-d 127.0.0.0/8 " + countLocal

// probeCounters determines whether rules can count. Where they cannot, the agent
// works without counters, as kube-proxy does. note is the reason.
func (d *Driver) probeCounters(ctx context.Context) (note string, err error) {
	d.counts = false
	if d.p.Counters == nil {
		return "", nil
	}
	const without = "dropped invalid packets and accepted localhost NodePorts are not counted: "
	if err := d.ensureCounters(); err != nil {
		return without + err.Error(), nil
	}
	for _, f := range d.families {
		err := d.try(ctx, f, counting()...)
		if errors.As(err, new(*iptables.RestoreError)) {
			note = without + "the kernel lacks the match nfacct (CONFIG_NETFILTER_XT_MATCH_NFACCT)"
			return note, d.removeCounters(ctx)
		}
		if err != nil {
			return "", err
		}
	}
	d.counts = true
	return "", nil
}

func counting() []feature {
	return []feature{{table: nat, rule: countLocal}, {table: filter, rule: countInvalid}}
}

// ensureCounters creates the counters, which must exist before a rule that feeds
// them is written.
func (d *Driver) ensureCounters() error {
	for _, name := range counters {
		if err := d.p.Counters.Ensure(name); err != nil {
			return err
		}
	}
	d.ensured = true
	return nil
}

// How long a counter may take to become free: nf_tables destroys rules in a worker
// after its commit. On 6.18 it is waited for when iptables-nft-restore closes its
// socket; that is nothing that older kernels promise.
const (
	freeTries = 50
	freePause = 20 * time.Millisecond
)

// removeCounters deletes the counters.
func (d *Driver) removeCounters(ctx context.Context) error {
	d.ensured = false
	if d.p.Counters == nil {
		return nil
	}
	return RemoveCounters(ctx, d.p.Counters, d.p.Log)
}

// RemoveCounters deletes the counters that rules of the agent or of kube-proxy fed. One
// that is still in use then is fed by another program's rule, which owns it.
func RemoveCounters(ctx context.Context, table nfacct.Table, log *slog.Logger) error {
	for _, name := range counters {
		err := table.Delete(name)
		for range freeTries {
			if !errors.Is(err, nfacct.ErrInUse) || ctx.Err() != nil {
				break
			}
			time.Sleep(freePause)
			err = table.Delete(name)
		}
		switch {
		case errors.Is(err, nfacct.ErrUnsupported):
			return nil
		case errors.Is(err, nfacct.ErrInUse):
			log.Info("nfacct counter not removed: a rule of another program uses it", "counter", name)
		case err != nil:
			return fmt.Errorf("clean up iptables: %w", err)
		}
	}
	return nil
}

// packets returns a function that reads a counter; any goroutine may call it.
func (d *Driver) packets(name string) func() (uint64, error) {
	return func() (uint64, error) {
		c, err := d.p.Counters.Read(name)
		return c.Packets, err
	}
}
