package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/internal/model"
)

// SyncDone records one sync of the engine.
func (m *Metrics) SyncDone(r *SyncReport) {
	m.results[r.Result].Inc()
	m.operations.Add(float64(r.Operations))
	m.operationsPerSync.Observe(float64(r.Operations))
	m.reads.Add(float64(r.Reads))
	m.conflicts.Add(float64(r.Conflicts))
	for p, d := range r.Phases {
		if d > 0 {
			m.phases[p].Observe(d.Seconds())
		}
	}
	kind := &m.partial
	if r.Full {
		kind = &m.full
	}
	for _, f := range m.chosen(r.Families) {
		observe(m.sync.of(f), r.Total)
		observe(kind.of(f), r.Total)
		if r.Result == Failed {
			add(m.syncFailures.of(f), 1)
			continue
		}
		m.lastSync.WithLabelValues(f.String()).Set(unix(r.Done))
	}
}

// Programmed records that a change was committed to the kernel at done: changed is when
// the API server recorded it, received when the agent received it; zero = unknown. The
// family is the EndpointSlice's; 0 = both.
func (m *Metrics) Programmed(family model.Family, changed, received, done time.Time) {
	if !changed.IsZero() {
		took := max(done.Sub(changed), 0) // the API server's clock may be ahead of this node's
		for _, f := range m.families {
			if family == 0 || family == f {
				observe(m.programming.of(f), took)
			}
		}
		m.fineProgramming.Observe(took.Seconds())
	}
	if !received.IsZero() {
		m.fineReceived.Observe(done.Sub(received).Seconds())
	}
}

// Queued records that a sync was requested, of one family or (0) of both.
func (m *Metrics) Queued(family model.Family, at time.Time) {
	for _, f := range m.families {
		if family != 0 && family != f {
			continue
		}
		m.lastQueued.WithLabelValues(f.String()).Set(unix(at))
	}
}

// ChangesSeen adds to the numbers of received changes.
func (m *Metrics) ChangesSeen(services, endpointSlices int) {
	m.serviceChanges.Add(float64(services))
	m.endpointChanges.Add(float64(endpointSlices))
}

// Sizes sets how many Services and endpoints are known.
func (m *Metrics) Sizes(services, endpoints int) {
	m.services.Set(float64(services))
	m.endpoints.Set(float64(endpoints))
}

// Pending sets how many kernel objects differ from the desired state.
func (m *Metrics) Pending(objects int) { m.pending.Set(float64(objects)) }

// Quarantined sets how many Services are quarantined.
func (m *Metrics) Quarantined(services int) { m.quarantined.Set(float64(services)) }

// DriftRepaired adds objects whose drift, caused by another program, was repaired. A
// kind that is not in the list counts as "other", so that the label stays bounded.
func (m *Metrics) DriftRepaired(kind string, objects int) {
	c, ok := m.drift[kind]
	if !ok {
		c = m.drift["other"]
	}
	c.Add(float64(objects))
}

// Rebuilt counts a family whose rules were rebuilt as a whole. A reason that is not in
// the list counts as "other".
func (m *Metrics) Rebuilt(reason string) {
	c, ok := m.rebuilds[reason]
	if !ok {
		c = m.rebuilds["other"]
	}
	c.Inc()
}

// Problems sets how many objects of each kind have something wrong now. Kinds that are
// not in the list count together as "other".
func (m *Metrics) Problems(objects map[string]int) {
	others := 0
	for kind, n := range objects {
		if _, ok := m.problems[kind]; !ok {
			others += n
		}
	}
	for kind, g := range m.problems {
		g.Set(float64(objects[kind]))
	}
	m.problems["other"].Add(float64(others))
}

// ServicesNoted sets how many Services have a Note, by reason.
func (m *Metrics) ServicesNoted(services map[string]int) {
	for reason, g := range m.noted {
		g.Set(float64(services[reason]))
	}
}

// NoLocalEndpoints sets how many Services have endpoints, but none here that
// their internal or external Local policy allows.
func (m *Metrics) NoLocalEndpoints(external bool, f model.Family, services int) {
	policy := "internal"
	if external {
		policy = "external"
	}
	m.noLocal.WithLabelValues(policy, f.String()).Set(float64(services))
}

// Conntrack records one removal of stale flows.
func (m *Metrics) Conntrack(f model.Family, took time.Duration, deleted int) {
	observe(m.flowsTook.of(f), took)
	add(m.flowsDeleted.of(f), deleted)
}

// LocalListeners sets how many NodePorts the agent itself answers on ::1.
func (m *Metrics) LocalListeners(n int) {
	m.localPorts.WithLabelValues(model.IPv6.String()).Set(float64(n))
}

// LocalListenFailed counts a NodePort that cannot be bound on ::1.
func (m *Metrics) LocalListenFailed() { m.localFailures.WithLabelValues(model.IPv6.String()).Inc() }

// LocalRejected counts a connection to ::1 that no endpoint took.
func (m *Metrics) LocalRejected(p model.Protocol) {
	m.localRejected.WithLabelValues(model.IPv6.String(), p.String()).Inc()
}

// RestoreFailed records a failed iptables-restore of a full or partial sync.
func (m *Metrics) RestoreFailed(f model.Family, partial bool) {
	m.iptablesRestore.WithLabelValues(f.String()).Inc()
	if partial {
		m.iptablesPartial.WithLabelValues(f.String()).Inc()
	}
}

// IPTablesRules sets how many rules of a table (nat, filter, mangle) the agent owns and
// how many the last sync wrote.
func (m *Metrics) IPTablesRules(table string, f model.Family, owned, written int) {
	m.iptablesRules.WithLabelValues(table, f.String()).Set(float64(owned))
	m.iptablesLast.WithLabelValues(table, f.String()).Set(float64(written))
}

// IPTablesAudit counts one audit of iptables' chains.
func (m *Metrics) IPTablesAudit(took time.Duration, drifted bool) {
	m.iptablesAudits[drifted].Inc()
	observe(m.iptablesAuditTook, took)
}

// IPTablesContended counts writes that had to wait for the xtables lock.
func (m *Metrics) IPTablesContended(writes int) { add(m.iptablesContended, writes) }

// IPTablesCounters returns functions that read what the kernel has counted: invalid
// packets that were dropped, and packets to NodePorts on localhost. They are called
// at each scrape, on its goroutine; with an error the metric has no row.
func (m *Metrics) IPTablesCounters(invalidDropped, localhostAccepted func() (packets uint64, err error)) {
	m.invalidDropped.read.Store(&invalidDropped)
	m.localAccepted.read.Store(&localhostAccepted)
}

// AffinityCounters sets the functions that count the clients that session affinity
// remembers, and the Service ports that can remember no more. They are called at each
// scrape, on its goroutine; with an error the metric has no row.
func (m *Metrics) AffinityCounters(clients, full func() (uint64, error)) {
	m.affinityClients.read.Store(&clients)
	m.affinityFull.read.Store(&full)
}

// Watch records whether the source of a resource is connected and when it last received
// anything. The resource is a fixed word of the source, such as "services".
func (m *Metrics) Watch(resource string, connected bool, last time.Time) {
	m.watches.set(resource, watch{connected, last})
}

// Healthz counts an answer of /healthz.
func (m *Metrics) Healthz(code int) { m.healthz.WithLabelValues(strconv.Itoa(code)).Inc() }

// Livez counts an answer of /livez.
func (m *Metrics) Livez(code int) { m.livez.WithLabelValues(strconv.Itoa(code)).Inc() }

// chosen returns families, or all families in use if there are none.
func (m *Metrics) chosen(families []model.Family) []model.Family {
	if len(families) == 0 {
		return m.families
	}
	return families
}

// observe and add do nothing for a family that is not in use.
func observe(o prometheus.Observer, d time.Duration) {
	if o != nil {
		o.Observe(d.Seconds())
	}
}

func add(c prometheus.Counter, n int) {
	if c != nil {
		c.Add(float64(n))
	}
}

func unix(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
