package metrics

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fairlead/fairlead/internal/model"
)

// Params configures New.
type Params struct {
	Mode     string // the proxy mode: rows of other modes are not served
	Families []model.Family
	Version  string // the agent's
	Commit   string
	Gates    map[string]bool  // feature gates with their values
	Now      func() time.Time // time.Now
	// Waiting counts the changes that are not in the kernel yet, at each scrape.
	Waiting func() (services, endpointSlices int)
}

// Metrics is every metric of the agent. All methods may be called from any
// goroutine; none blocks.
type Metrics struct {
	reg, slis *prometheus.Registry
	now       func() time.Time
	families  []model.Family

	sync, full, partial, programming byFamily[prometheus.Observer]
	syncFailures                     byFamily[prometheus.Counter]
	flowsTook                        byFamily[prometheus.Observer]
	flowsDeleted                     byFamily[prometheus.Counter]
	lastSync, lastQueued, noLocal    *prometheus.GaugeVec // no row before its first value: 0 would read as 1970

	results                          [3]prometheus.Counter // by Result
	phases                           [NumPhases]prometheus.Observer
	fineProgramming, fineReceived    prometheus.Observer
	operations, reads, conflicts     prometheus.Counter
	operationsPerSync                prometheus.Observer
	endpointChanges, serviceChanges  prometheus.Counter
	services, endpoints              prometheus.Gauge
	pending, quarantined             prometheus.Gauge
	drift, rebuilds                  map[string]prometheus.Counter
	problems, noted                  map[string]prometheus.Gauge
	watches                          *watches
	healthz, livez                   *prometheus.CounterVec
	restRequests                     *prometheus.CounterVec
	restLatency                      *prometheus.HistogramVec
	healthchecks                     prometheus.Counter
	localPorts                       *prometheus.GaugeVec
	localFailures, localRejected     *prometheus.CounterVec
	iptablesRestore, iptablesPartial *prometheus.CounterVec
	iptablesRules, iptablesLast      *prometheus.GaugeVec
	iptablesAudits                   map[bool]prometheus.Counter // by drifted
	iptablesAuditTook                prometheus.Observer
	iptablesContended                prometheus.Counter
	invalidDropped, localAccepted    *kernelCount
	affinityClients, affinityFull    *kernelCount
	offload                          *offloadCollector
	traffic                          *trafficCollector
}

// New returns the metrics of one agent, in a registry of their own.
func New(p Params) *Metrics {
	b := newBuilder(p.Mode)
	m := &Metrics{reg: b.reg, now: p.Now, families: p.Families}
	b.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.buildKubeProxy(b, p)
	m.buildSync(b)
	m.buildState(b)
	m.buildSLIs()
	m.setInfo(b, p)
	b.finish()
	return m
}

func (m *Metrics) buildKubeProxy(b *builder, p Params) {
	const prefix = "kubeproxy_"
	m.sync = perFamily(m.families, b.histogram(prefix+"sync_proxy_rules_duration_seconds").WithLabelValues)
	m.full = perFamily(m.families, b.histogram(prefix+"sync_full_proxy_rules_duration_seconds").WithLabelValues)
	m.partial = perFamily(m.families, b.histogram(prefix+"sync_partial_proxy_rules_duration_seconds").WithLabelValues)
	m.programming = perFamily(m.families, b.histogram(prefix+"network_programming_duration_seconds").WithLabelValues)
	m.lastSync = b.gauge(prefix + "sync_proxy_rules_last_timestamp_seconds")
	m.lastQueued = b.gauge(prefix + "sync_proxy_rules_last_queued_timestamp_seconds")
	b.gaugeFunc(prefix+"sync_proxy_rules_endpoint_changes_pending", func() int { _, n := p.Waiting(); return n })
	m.endpointChanges = b.counter(prefix + "sync_proxy_rules_endpoint_changes_total").WithLabelValues()
	b.gaugeFunc(prefix+"sync_proxy_rules_service_changes_pending", func() int { n, _ := p.Waiting(); return n })
	m.serviceChanges = b.counter(prefix + "sync_proxy_rules_service_changes_total").WithLabelValues()
	m.noLocal = b.gauge(prefix + "sync_proxy_rules_no_local_endpoints_total")
	for _, f := range m.families {
		m.NoLocalEndpoints(false, f, 0)
		m.NoLocalEndpoints(true, f, 0)
	}
	m.iptablesRestore = b.counter(prefix + "sync_proxy_rules_iptables_restore_failures_total")
	m.iptablesPartial = b.counter(prefix + "sync_proxy_rules_iptables_partial_restore_failures_total")
	m.iptablesRules = b.gauge(prefix + "sync_proxy_rules_iptables_total")
	m.iptablesLast = b.gauge(prefix + "sync_proxy_rules_iptables_last")
	audits := b.counter("fairlead_iptables_audits_total")
	m.iptablesAudits = map[bool]prometheus.Counter{false: audits.WithLabelValues("same"), true: audits.WithLabelValues("drifted")}
	m.iptablesAuditTook = b.histogram("fairlead_iptables_audit_duration_seconds").WithLabelValues()
	m.iptablesContended = b.counter("fairlead_iptables_lock_contended_total").WithLabelValues()
	m.invalidDropped = b.kernelCount(prefix + "iptables_ct_state_invalid_dropped_packets_total")
	m.localAccepted = b.kernelCount(prefix + "iptables_localhost_nodeports_accepted_packets_total")
	m.affinityClients, m.affinityFull = b.kernelGauge("fairlead_affinity_clients"), b.kernelGauge("fairlead_affinity_full")
	m.syncFailures = perFamily(m.families, b.counter(prefix+"sync_proxy_rules_nftables_sync_failures_total").WithLabelValues)
	m.localPorts = b.gauge(prefix + "nftables_localhost_nodeport_listeners")
	m.localFailures = b.counter(prefix + "nftables_localhost_nodeport_listener_creation_failures_total")
	m.localRejected = b.counter(prefix + "nftables_localhost_nodeport_rejected_packets_total")
	m.healthz = b.counter(prefix + "proxy_healthz_total")
	m.livez = b.counter(prefix + "proxy_livez_total")
	m.flowsTook = perFamily(m.families, b.histogram(prefix+"conntrack_reconciler_sync_duration_seconds").WithLabelValues)
	m.flowsDeleted = perFamily(m.families, b.counter(prefix+"conntrack_reconciler_deleted_entries_total").WithLabelValues)
}

func (m *Metrics) buildSync(b *builder) {
	results := b.counter("fairlead_syncs_total")
	for r, name := range [3]string{OK: "ok", Refused: "refused", Failed: "failed"} {
		m.results[r] = results.WithLabelValues(name)
	}
	phases := b.histogram("fairlead_sync_phase_duration_seconds")
	for ph, name := range [NumPhases]string{
		PhaseState: "state", PhasePolicy: "policy", PhaseApply: "apply", PhaseLoad: "load",
	} {
		m.phases[ph] = phases.WithLabelValues(name)
	}
	m.fineProgramming = b.histogram("fairlead_network_programming_duration_seconds").WithLabelValues()
	m.fineReceived = b.histogram("fairlead_receive_to_commit_duration_seconds").WithLabelValues()
	m.operations = b.counter("fairlead_operations_total").WithLabelValues()
	m.operationsPerSync = b.histogram("fairlead_operations_per_sync").WithLabelValues()
	m.reads = b.counter("fairlead_kernel_reads_total").WithLabelValues()
	m.conflicts = b.counter("fairlead_conflicts_total").WithLabelValues()
	m.drift = map[string]prometheus.Counter{}
	drift := b.counter("fairlead_drift_repaired_total")
	for _, k := range driftKinds() {
		m.drift[k] = drift.WithLabelValues(k)
	}
	m.rebuilds = map[string]prometheus.Counter{}
	rebuilds := b.counter("fairlead_rebuilds_total")
	for _, reason := range rebuildReasons() {
		m.rebuilds[reason] = rebuilds.WithLabelValues(reason)
	}
}

func (m *Metrics) buildState(b *builder) {
	m.services = b.gauge("fairlead_services").WithLabelValues()
	m.endpoints = b.gauge("fairlead_endpoints").WithLabelValues()
	m.pending = b.gauge("fairlead_pending_objects").WithLabelValues()
	m.quarantined = b.gauge("fairlead_quarantined_objects").WithLabelValues()
	m.problems = map[string]prometheus.Gauge{}
	problems := b.gauge("fairlead_problems")
	for _, k := range problemKinds() {
		m.problems[k] = problems.WithLabelValues(k)
	}
	m.noted = map[string]prometheus.Gauge{}
	noted := b.gauge("fairlead_services_noted")
	for _, k := range noteReasons() {
		m.noted[k] = noted.WithLabelValues(k)
	}
	m.offload, m.traffic = newOffload(b), newTraffic(b)
	m.watches = newWatches(b.desc("fairlead_watch_connected", gauge), b.desc("fairlead_watch_staleness_seconds", gauge), m.now)
	b.reg.MustRegister(m.watches)
	m.restRequests = b.counter("rest_client_requests_total")
	m.restLatency = b.histogram("rest_client_request_duration_seconds")
}

// setInfo fills the constant rows.
func (m *Metrics) setInfo(b *builder, p Params) {
	b.gauge("fairlead_build_info").WithLabelValues(p.Version, p.Commit, runtime.Version(), p.Mode).Set(1)
	b.gauge("kubernetes_build_info").WithLabelValues("", runtime.Compiler, p.Commit, "", "v1.36.3+fairlead-"+p.Version,
		runtime.Version(), "1", "36", runtime.GOOS+"/"+runtime.GOARCH).Set(1)
	gates := b.gauge("kubernetes_feature_enabled")
	for name, stage := range servedGates() {
		v := 0.0
		if p.Gates[name] {
			v = 1
		}
		gates.WithLabelValues(name, stage).Set(v)
	}
}

// servedGates are the gates that mean something to a Service proxy, with their
// stage in Kubernetes 1.36.
func servedGates() map[string]string {
	return map[string]string{
		"AllowServiceExternalIPs": "", "MultiCIDRServiceAllocator": "", "NFTablesProxyMode": "",
		"PreferSameTrafficDistribution": "", "RelaxedServiceNameValidation": "BETA", "StrictIPCIDRValidation": "BETA",
		"ComponentFlagz": "BETA", "ComponentStatusz": "BETA", "KubeProxyAcceleration": "ALPHA",
	}
}

func driftKinds() []string { return []string{"table", "chain", "rule", "set", "element", "other"} }

// rebuildReasons: a set of the kernel is full; another version's layout; a table, set
// or chain is not declared as the agent declares it; repeated failures make the synced
// state uncertain.
func rebuildReasons() []string { return []string{"full", "layout", "declaration", "distrust", "other"} }

// problemKinds are the kinds of objects, "file" for a manifest that cannot be read, and
// "source" for an API server or folder that cannot.
func problemKinds() []string {
	return []string{"service", "endpointslice", "node", "servicecidr", "file", "source", "other"}
}

// noteReasons are the reasons of fairlead_services_noted, in policy's spelling.
func noteReasons() []string {
	return []string{"hints_ignored", "no_endpoints", "none_ready", "none_local", "only_terminating", "weights_ignored", "claim_lost", "external_ip_of_node"}
}
