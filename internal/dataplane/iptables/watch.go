package iptables

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
)

// Watch implements dataplane.Driver: the seam looks at the stamp several times a
// second, which costs microseconds, and between two looks an audit may run.
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

// alarm is what Watch has rung for: a state, and what we knew then. Once that has
// moved on, the same state is news: with x_tables the same damage done twice gives
// the same stamp twice.
type alarm struct {
	now   iptables.Stamp
	known *iptables.Stamp
}

// quietPause is how often Watch looks whether our own write has ended.
const quietPause = 5 * time.Millisecond

// present returns the state at a moment when we do not write, and tells whether we
// know it.
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

// Changed implements dataplane.Driver. When others write all the time and our
// rules are many, it says so only as often as we can afford to read them all.
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

// broken asks cheaply whether somebody has taken the rules away altogether.
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

// credit is how much time we may spend on reading all rules because others wrote:
// a share of the time that passes, saved up to a limit.
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
