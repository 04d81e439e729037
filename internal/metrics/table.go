package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// kind is the type of a metric.
type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
)

// row is one metric. Every name that the agent serves, apart from go_ and
// process_, stands in rows() and nowhere else.
type row struct {
	name    string
	kind    kind
	help    string
	labels  []string
	buckets []float64
	modes   []string // modes that have it; nil = every mode
}

// in reports whether a scraper sees the row in a mode: rows of another mode would
// look like that mode at work.
func (r row) in(mode string) bool { return r.modes == nil || slices.Contains(r.modes, mode) }

func rows() []row {
	return slices.Concat(kubeProxySync(), kubeProxyRest(), ownSync(), ownState(), offloadRows(), serviceRows(), clientRows())
}

// kubeProxySync are kube-proxy's names for the syncs themselves, buckets included.
func kubeProxySync() []row {
	family, ruleModes := []string{"ip_family"}, []string{"iptables", "nftables"}
	sync := prometheus.ExponentialBuckets(0.001, 2, 15)
	programming := slices.Concat(
		prometheus.LinearBuckets(0.25, 0.25, 2), prometheus.LinearBuckets(1, 1, 59),
		prometheus.LinearBuckets(60, 5, 12), prometheus.LinearBuckets(120, 30, 7))
	return []row{
		{"kubeproxy_sync_proxy_rules_duration_seconds", histogram, "Duration of a sync.", family, sync, nil},
		{"kubeproxy_sync_full_proxy_rules_duration_seconds", histogram, "Duration of a full sync, which compares all rules with the kernel.", family, sync, ruleModes},
		{"kubeproxy_sync_partial_proxy_rules_duration_seconds", histogram, "Duration of a partial sync, which writes only the changes.", family, sync, ruleModes},
		{"kubeproxy_sync_proxy_rules_last_timestamp_seconds", gauge, "Time at which the last successful sync ended.", family, nil, nil},
		{"kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", gauge, "Time at which a sync was last requested.", family, nil, nil},
		{"kubeproxy_network_programming_duration_seconds", histogram, "Time from the change recorded by the API server until it is written to the kernel.", family, programming, nil},
		{"kubeproxy_sync_proxy_rules_endpoint_changes_pending", gauge, "EndpointSlice changes not yet written to the kernel.", nil, nil, nil},
		{"kubeproxy_sync_proxy_rules_endpoint_changes_total", counter, "EndpointSlice changes received.", nil, nil, nil},
		{"kubeproxy_sync_proxy_rules_service_changes_pending", gauge, "Service changes not yet written to the kernel.", nil, nil, nil},
		{"kubeproxy_sync_proxy_rules_service_changes_total", counter, "Service changes received.", nil, nil, nil},
		{"kubeproxy_sync_proxy_rules_no_local_endpoints_total", gauge, "Services with traffic policy Local that have endpoints, but none on this node.", []string{"traffic_policy", "ip_family"}, nil, nil},
	}
}

// kubeProxyRest are kube-proxy's other names.
func kubeProxyRest() []row {
	family := []string{"ip_family"}
	nft, ipt, iptBased := []string{"nftables"}, []string{"iptables"}, []string{"iptables", "ipvs"}
	kernel := []string{"iptables", "ipvs", "nftables"}
	return []row{
		{"kubeproxy_sync_proxy_rules_iptables_restore_failures_total", counter, "Failed iptables-restore runs.", family, nil, iptBased},
		{"kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total", counter, "Failed iptables-restore runs of partial syncs.", family, nil, ipt},
		{"kubeproxy_sync_proxy_rules_iptables_total", gauge, "Rules owned by the agent.", []string{"table", "ip_family"}, nil, ipt},
		{"kubeproxy_sync_proxy_rules_iptables_last", gauge, "Rules written by the last sync.", []string{"table", "ip_family"}, nil, ipt},
		{"kubeproxy_iptables_ct_state_invalid_dropped_packets_total", counter, "Packets dropped by the kernel because connection tracking classifies them as invalid; no row if the kernel cannot count them (nfacct).", nil, nil, ipt},
		{"kubeproxy_iptables_localhost_nodeports_accepted_packets_total", counter, "First packets of connections to NodePorts on 127.0.0.0/8 that the kernel accepted; no row if the kernel cannot count them (nfacct).", nil, nil, ipt},
		{"fairlead_iptables_audits_total", counter, "Audits: comparisons of all chains of the agent with the desired state, by result: same or drifted.", []string{"result"}, nil, ipt},
		{"fairlead_iptables_audit_duration_seconds", histogram, "Duration of an audit, which runs concurrently with syncs.", nil, prometheus.ExponentialBuckets(0.01, 2, 12), ipt},
		{"fairlead_iptables_lock_contended_total", counter, "Writes that had to wait because another program held the xtables lock.", nil, nil, ipt},
		{"fairlead_affinity_clients", gauge, "Session affinity entries of all Service ports; no row if the kernel cannot be read.", nil, nil, nft},
		{"fairlead_affinity_full", gauge, "Service ports whose session affinity table is full: new clients are balanced without affinity.", nil, nil, nft},
		{"kubeproxy_sync_proxy_rules_nftables_sync_failures_total", counter, "Failed nftables transactions.", family, nil, nft},
		{"kubeproxy_nftables_localhost_nodeport_listeners", gauge, "NodePorts that the agent itself serves on the loopback address.", family, nil, nft},
		{"kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total", counter, "NodePorts that could not be bound on the loopback address.", family, nil, nft},
		{"kubeproxy_nftables_localhost_nodeport_rejected_packets_total", counter, "Connections, and first datagrams of clients, to the loopback address that no endpoint accepted.", []string{"ip_family", "protocol"}, nil, nft},
		{"kubeproxy_proxy_healthz_total", counter, "Responses of /healthz by HTTP status.", []string{"code"}, nil, nil},
		{"kubeproxy_proxy_livez_total", counter, "Responses of /livez by HTTP status.", []string{"code"}, nil, nil},
		{"kubeproxy_conntrack_reconciler_sync_duration_seconds", histogram, "Duration of a removal of stale conntrack flows.", family, prometheus.ExponentialBuckets(0.001, 2, 15), kernel},
		{"kubeproxy_conntrack_reconciler_deleted_entries_total", counter, "Stale conntrack flows removed.", family, nil, kernel},
	}
}

// ownSync are the agent's own names for syncs: finer than kube-proxy's, because a sync
// here takes less than their first bucket.
func ownSync() []row {
	fine := []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30, 60}
	return []row{
		{"fairlead_syncs_total", counter, "Syncs by result: ok, refused (the kernel rejected objects; their Services are quarantined) or failed.", []string{"result"}, nil, nil},
		{"fairlead_sync_phase_duration_seconds", histogram, "Duration of a phase of a sync.", []string{"phase"}, prometheus.ExponentialBuckets(0.000_01, 4, 12), nil},
		{"fairlead_network_programming_duration_seconds", histogram, "As kubeproxy_network_programming_duration_seconds, with finer buckets.", nil, fine, nil},
		{"fairlead_receive_to_commit_duration_seconds", histogram, "Time from the receipt of a change until it is committed to the kernel, measured with one clock.", nil, fine, nil},
		{"fairlead_operations_total", counter, "Kernel objects created, changed or deleted.", nil, nil, nil},
		{"fairlead_operations_per_sync", histogram, "Kernel objects written by one sync.", nil, slices.Concat([]float64{0}, prometheus.ExponentialBuckets(1, 4, 12)), nil},
		{"fairlead_kernel_reads_total", counter, "Dumps and queries of kernel state.", nil, nil, nil},
		{"fairlead_conflicts_total", counter, "Batches rejected because another program changed the rule set concurrently.", nil, nil, nil},
		{"fairlead_drift_repaired_total", counter, "Objects repaired after drift: another program had changed or deleted them.", []string{"kind"}, nil, nil},
		{"fairlead_rebuilds_total", counter, "Rebuilds of all rules of an address family, by reason.", []string{"reason"}, nil, nil},
	}
}

// ownState are the agent's own names for the current state.
func ownState() []row {
	return []row{
		{"fairlead_services", gauge, "Services in the desired state.", nil, nil, nil},
		{"fairlead_endpoints", gauge, "Endpoints in the desired state.", nil, nil, nil},
		{"fairlead_pending_objects", gauge, "Kernel objects whose actual state differs from the desired state.", nil, nil, nil},
		{"fairlead_quarantined_objects", gauge, "Services in quarantine because the kernel rejected their objects.", nil, nil, nil},
		{"fairlead_problems", gauge, "Input objects with a problem, by kind.", []string{"kind"}, nil, nil},
		{"fairlead_services_noted", gauge, "Services that need attention, by reason; fairlead explain shows the details.", []string{"reason"}, nil, nil},
		{"fairlead_watch_connected", gauge, "1 while the source of a resource is connected.", []string{"resource"}, nil, nil},
		{"fairlead_watch_staleness_seconds", gauge, "Time since the source of a resource last received data.", []string{"resource"}, nil, nil},
		{"fairlead_build_info", gauge, "Always 1; the labels describe the running build.", []string{"version", "commit", "go_version", "mode"}, nil, nil},
		{"kubernetes_build_info", gauge, "Always 1; the Kubernetes version whose kube-proxy this agent replaces.", []string{"build_date", "compiler", "git_commit", "git_tree_state", "git_version", "go_version", "major", "minor", "platform"}, nil, nil},
		{"kubernetes_feature_enabled", gauge, "1 if the feature gate is on.", []string{"name", "stage"}, nil, nil},
	}
}

// clientRows are client-go's names for requests to the API server.
func clientRows() []row {
	latency := []float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60}
	return []row{
		{"rest_client_requests_total", counter, "Requests to the API server by status code, method and host.", []string{"code", "method", "host"}, nil, nil},
		{"rest_client_request_duration_seconds", histogram, "Duration of requests to the API server.", []string{"verb", "host"}, latency, nil},
	}
}
