package iptables

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/nfacct"
	"github.com/fairlead/fairlead/internal/model"
)

// Name is the value of --proxy-mode.
const Name = "iptables"

// Params configure a Driver.
type Params struct {
	Kernel iptables.Kernel
	// Counters are the kernel's counters that rules update; nil: rules count nothing.
	Counters nfacct.Table
	// Families are the families to serve, both if empty. Probe removes those that the
	// kernel does not support.
	Families []model.Family
	// TCPBeLiberal: conntrack calls no packet invalid for its sequence numbers,
	// so that there is nothing to drop (kube-proxy's tcpBeLiberal).
	TCPBeLiberal bool
	// AuditPeriod is the least time between two audits; 0 means none.
	AuditPeriod time.Duration
	// Contended counts the writes that had to wait for the xtables lock; may be nil.
	Contended func() uint64
	Log       *slog.Logger
	Now       func() time.Time
}

// Observer is notified of what metrics report. Its methods must not block.
type Observer interface {
	RestoreFailed(f model.Family, partial bool)
	IPTablesRules(table string, f model.Family, owned, written int)
	IPTablesAudit(took time.Duration, drifted bool)
	IPTablesContended(writes int)
	// IPTablesCounters returns functions that read, at any time and from any
	// goroutine, how many packets the rules have counted. It is called only if
	// they count.
	IPTablesCounters(invalidDropped, localhostAccepted func() (uint64, error))
}

// Driver is the iptables data plane. Its methods must be called from one goroutine, except
// for Watch, Compare, Recall and Survey.
type Driver struct {
	p        Params
	k        iptables.Kernel
	families []model.Family
	cluster  bool // the kernel can choose by hash of the client (xt_cluster)
	counts   bool // rules count (Params.Counters, and the kernel can)
	own      map[model.Family]ownReading
	memory   memory
	ensured  bool // the counters exist, as far as is known
	observer Observer
	waited   uint64 // waits for the lock, as reported to the observer

	there  mirror
	stamp  iptables.Stamp // the stamp after the last read or write; zero: none yet
	unsure atomic.Bool    // the actual state may differ from the mirror: Changed reports it until the next Load
	credit credit         // bounds full reads that other programs' writes cause
	since  int            // Restores that succeeded since the last Load
	audit  auditor
	// toldUnreadable: it has been logged that a table is read by the programs.
	toldUnreadable atomic.Bool
	// known is the stamp that Watch compares with. busy makes Watch wait during the driver's own writes.
	known atomic.Pointer[iptables.Stamp]
	busy  atomic.Bool
	// readAt is when everything was last read; nil: never.
	readAt atomic.Pointer[time.Time]
	// written is a copy of there.writes, for the audits.
	written atomic.Uint64
}

var (
	_ dataplane.Driver   = (*Driver)(nil)
	_ dataplane.Recaller = (*Driver)(nil)
)

// New returns a Driver. It does not access the kernel.
func New(p Params) *Driver {
	if len(p.Families) == 0 {
		p.Families = []model.Family{model.IPv4, model.IPv6}
	}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	if p.Now == nil {
		p.Now = time.Now
	}
	d := &Driver{p: p, k: p.Kernel, families: p.Families, cluster: true, there: newMirror(), credit: newCredit(p.Now())}
	d.known.Store(&iptables.Stamp{})
	return d
}

// Observe sets the observer of failures and sizes. It must be called after Probe.
func (d *Driver) Observe(o Observer) {
	d.observer = o
	if d.counts {
		o.IPTablesCounters(d.packets(invalidCounter), d.packets(localhostCounter))
	}
}

// Name implements dataplane.Driver.
func (d *Driver) Name() string { return Name }

// Width implements dataplane.Driver: there are no pools.
func (d *Driver) Width(dataplane.Key) int { return 0 }

// Linger implements dataplane.Driver.
func (d *Driver) Linger(dataplane.Key) time.Duration { return 0 }

// ViewChanged implements dataplane.Driver: the chains of Services hold the test
// for pods, and count what comes by localhost. Addresses and the mark are in fixed
// chains, which Base renders.
func (d *Driver) ViewChanged(old, now *model.NodeView) bool {
	return d.counts && old.LocalhostNodePorts != now.LocalhostNodePorts || old.MasqueradeAll != now.MasqueradeAll || old.Local.Mode != now.Local.Mode ||
		old.Local.Interface != now.Local.Interface || !slices.Equal(old.Local.CIDRs, now.Local.CIDRs)
}

func (d *Driver) serves(f model.Family) bool { return slices.Contains(d.families, f) }

// saw records the stamp of the state that the mirror reflects.
func (d *Driver) saw(s iptables.Stamp) {
	d.stamp = s
	d.known.Store(&s)
}

// Beside records a commit to nf_tables by another part of this process, which changed
// nothing in tables of iptables, and the generation that it made. If that generation directly follows
// the known one, it becomes known. Otherwise another program wrote in between, and Changed detects that.
// Only the goroutine of Apply may call it.
func (d *Driver) Beside(generation uint32) {
	if d.stamp.Precedes(generation) {
		d.saw(iptables.Stamp{Generation: generation})
	}
}

// doubt makes Changed request a Load.
func (d *Driver) doubt() { d.unsure.Store(true) }
