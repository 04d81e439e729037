package iptables

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// auditShare: an audit takes at most one part of so many of the time.
const auditShare = 200

// reminder is how often a doubt that could not be afforded to settle rings again.
const reminder = time.Second

// auditor compares what the kernel prints with what we wrote, by names and
// digests, at a paced rate and beside the engine. It exists for what a stamp
// cannot tell: a rule replaced by another of the same size (legacy), or a partial
// restore that succeeded and was wrong, which KEP-3453 fears.
type auditor struct {
	finding atomic.Pointer[finding] // handed from the audits to the engine
}

// finding is what an audit read: digests of all our chains, with the time it took.
type finding struct {
	chains map[chainRef]uint64
	writes uint64 // of the mirror, before anything was read
	took   time.Duration
}

// audits runs audits until ctx ends. It shares the engine's goroutine nothing but
// the finding.
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
		f := &finding{chains: map[chainRef]uint64{}, writes: d.written.Load()}
		if !d.readDigests(ctx, f) {
			continue
		}
		f.took = d.p.Now().Sub(began)
		next = d.p.Now().Add(max(pause, auditShare*f.took))
		d.audit.finding.Store(f)
		changed() // the engine compares: the mirror is its own
	}
}

func (d *Driver) readDigests(ctx context.Context, f *finding) bool {
	for _, family := range d.families {
		readers := map[string]*digester{}
		for _, t := range tables {
			readers[t.String()] = &digester{out: f.chains, family: family, table: t}
		}
		read := func(table string, line []byte) error { return readers[table].read(line) }
		if d.k.SaveAll(ctx, kernelFamily(family), tableNames(), read) != nil {
			return false
		}
		for _, r := range readers {
			r.finish()
		}
	}
	return true
}

// digester reads one table.
type digester struct {
	out    map[chainRef]uint64
	family model.Family
	table  table
	chain  string
	sum    digest
	ours   bool
}

func (r *digester) read(line []byte) error {
	if name, ok := declared(line); ok {
		if kindOfChain(r.table, string(name)) != 0 {
			r.out[chainRef{r.family, r.table, string(name)}] = newDigest().h.Sum64()
		}
		return nil
	}
	chain, rule, ok := splitRule(line)
	if !ok {
		return nil
	}
	if string(chain) != r.chain {
		r.finish()
		r.chain, r.sum = string(chain), newDigest()
		r.ours = kindOfChain(r.table, r.chain) != 0
	}
	if r.ours {
		r.sum.add(rule)
	}
	return nil
}

func (r *digester) finish() {
	if r.ours {
		r.out[chainRef{r.family, r.table, r.chain}] = r.sum.h.Sum64()
	}
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
		if sum, ok := f.chains[ref]; (!ok || sum != c.sum) && c.wrote <= f.writes {
			return true
		}
	}
	if d.there.writes != f.writes {
		return false // a chain deleted meanwhile looks like a stranger
	}
	return len(f.chains) != len(d.there.chains)
}
