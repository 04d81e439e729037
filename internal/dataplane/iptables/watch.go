package iptables

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
)

// Watch implements dataplane.Driver: the kernel client reads the stamp several times a
// second, which costs microseconds. Between two reads an audit may run.
func (d *Driver) Watch(ctx context.Context, changed func()) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	audits := make(chan struct{})
	go func() {
		defer close(audits)
		d.audits(ctx, changed)
	}()
	var told alarm
	err := d.k.Watch(ctx, func(seen iptables.Stamp) {
		if seen == *d.known.Load() {
			return
		}
		now, known := d.present(ctx)
		if a := (alarm{now, d.known.Load()}); !known && a != told {
			told = a
			changed()
		}
	})
	stop()
	<-audits
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("watch iptables: %w", err)
	}
	return nil
}

// alarm is what Watch last notified of: an actual state, and the known state at that time. Once the known
// state has changed, the same actual state is notified again: with x_tables the same damage done twice
// results in the same stamp twice.
type alarm struct {
	now   iptables.Stamp
	known *iptables.Stamp
}

// quietPause is the interval at which Watch checks whether the driver's own write has ended.
const quietPause = 5 * time.Millisecond

// present returns the stamp at a moment when the driver does not write, and reports whether it is
// the known one.
func (d *Driver) present(ctx context.Context) (now iptables.Stamp, known bool) {
	for ctx.Err() == nil {
		before := d.known.Load()
		now, err := d.k.Stamp(ctx)
		if !d.busy.Load() && d.known.Load() == before {
			return now, err == nil && now == *before
		}
		select {
		case <-ctx.Done():
		case <-time.After(quietPause):
		}
	}
	return now, true
}

// Changed implements dataplane.Driver. When other programs write continually and there are many owned
// rules, it reports a change only as often as the credit allows a full read.
func (d *Driver) Changed(ctx context.Context) (bool, error) {
	if d.drifted() {
		return true, nil
	}
	now, err := d.k.Stamp(ctx)
	if err != nil {
		return false, err
	}
	if now == d.stamp && !d.unsure.Load() {
		return false, nil
	}
	if d.affordable() {
		return true, nil
	}
	d.doubt()
	return d.broken(ctx, now), nil
}

func (d *Driver) affordable() bool { return d.credit.left(d.p.Now()) > 0 }

// broken reports, by a cheap check, whether another program has removed the rules: with x_tables more than a
// tenth of all entries, with nf_tables a jump of the nat table or lines of KUBE-SERVICES.
func (d *Driver) broken(ctx context.Context, now iptables.Stamp) bool {
	if d.k.Backend() == iptables.Legacy {
		had, has := d.stamp.Entries(), now.Entries()
		return has < had-had/10
	}
	for _, f := range d.families {
		for _, j := range jumps() {
			if j.table != nat {
				continue
			}
			rules, err := d.k.List(ctx, kernelFamily(f), j.table.String(), j.chain)
			if err != nil || !contains(rules, "-A "+j.chain+" "+j.rule) {
				return true
			}
		}
		rules, err := d.k.List(ctx, kernelFamily(f), nat.String(), servicesChain)
		if err != nil || len(rules) != len(d.there.lines(chainRef{f, nat, servicesChain})) {
			return true
		}
	}
	return false
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// credit is the time that full reads caused by other programs' writes may take:
// a share of the elapsed time, accumulated up to a limit.
type credit struct {
	saved time.Duration
	at    time.Time
}

const (
	creditLimit = 20 * time.Second
	creditShare = 50 // one part of so many
)

func newCredit(now time.Time) credit { return credit{creditLimit, now} }

func (c *credit) left(now time.Time) time.Duration {
	if now.After(c.at) {
		c.saved = min(c.saved+now.Sub(c.at)/creditShare, creditLimit)
		c.at = now
	}
	return c.saved
}

func (c *credit) spend(now time.Time, d time.Duration) {
	c.left(now)
	c.saved = max(c.saved-d, -creditLimit)
}
