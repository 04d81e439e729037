package iptables

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// auditShare: an audit takes at most one part of so many of the time.
const auditShare = 200

// reminder is the interval at which an uncertain state is notified again while the credit does not allow a full read.
const reminder = time.Second

// auditor compares the actual rules with the mirror, by names and
// digests, at a limited rate and concurrently with the engine. It detects drift that a stamp
// does not show: a rule replaced by another of the same size (legacy), or a partial
// restore that succeeded and was wrong, which KEP-3453 fears.
type auditor struct {
	finding atomic.Pointer[finding] // handed from the audits to the engine
}

// finding is what an audit read of the owned chains, and the time it took.
type finding struct {
	chains map[chainRef]*chain
	writes uint64 // of the mirror, before anything was read
	took   time.Duration
}

// audits runs audits until ctx ends. It shares only the finding with the engine's
// goroutine.
func (d *Driver) audits(ctx context.Context, changed func()) {
	pause := d.p.AuditPeriod
	next := d.p.Now().Add(pause)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(reminder):
		}
		if d.unsure.Load() {
			changed()
		}
		if pause == 0 || d.p.Now().Before(next) {
			continue
		}
		next = d.p.Now().Add(pause)
		began := d.p.Now()
		f := &finding{writes: d.written.Load()}
		if f.chains = d.readDigests(ctx); f.chains == nil {
			continue
		}
		f.took = d.p.Now().Sub(began)
		next = d.p.Now().Add(max(pause, auditShare*f.took))
		d.audit.finding.Store(f)
		changed() // the engine compares, because it owns the mirror
	}
}

// readDigests returns nil where not everything could be read.
func (d *Driver) readDigests(ctx context.Context) map[chainRef]*chain {
	there := newMirror()
	if d.readAll(ctx, scan{there: &there, emit: func(dataplane.Key, string) {}, digests: true}) != nil {
		return nil
	}
	return there.chains
}

// drifted compares a finding with the mirror. Chains that were written while the
// audit read are left for the next one.
func (d *Driver) drifted() bool {
	f := d.audit.finding.Swap(nil)
	if f == nil {
		return false
	}
	bad := d.differs(f)
	if d.observer != nil {
		d.observer.IPTablesAudit(f.took, bad)
	}
	if bad {
		d.doubt()
	}
	return bad
}

func (d *Driver) differs(f *finding) bool {
	for ref, c := range d.there.chains {
		if is := f.chains[ref]; (is == nil || is.sum != c.sum) && c.wrote <= f.writes {
			return true
		}
	}
	if d.there.writes != f.writes {
		return false // a chain deleted concurrently looks like a foreign one
	}
	return len(f.chains) != len(d.there.chains)
}
