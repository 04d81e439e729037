package config

// flagOf returns the flag of a field of the file; "" if it has none. Modes other
// than ipvs share the flags that are named after iptables.
func flagOf(field string) string {
	return map[string]string{
		"mode":                            "proxy-mode",
		"featureGates":                    "feature-gates",
		"hostnameOverride":                "hostname-override",
		"clientConnection.burst":          "kube-api-burst",
		"configSyncPeriod":                "config-sync-period",
		"bindAddress":                     "bind-address",
		"healthzBindAddress":              "healthz-bind-address",
		"metricsBindAddress":              "metrics-bind-address",
		"showHiddenMetricsForVersion":     "show-hidden-metrics-for-version",
		"oomScoreAdj":                     "oom-score-adj",
		"logging.format":                  "logging-format",
		"clusterCIDR":                     "cluster-cidr",
		"detectLocalMode":                 "detect-local-mode",
		"detectLocal.bridgeInterface":     "pod-bridge-interface",
		"detectLocal.interfaceNamePrefix": "pod-interface-name-prefix",
		"nodePortAddresses":               "nodeport-addresses",
		"iptables.masqueradeBit":          "iptables-masquerade-bit",
		"iptables.syncPeriod":             "iptables-sync-period",
		"iptables.minSyncPeriod":          "iptables-min-sync-period",
		"nftables.syncPeriod":             "iptables-sync-period",
		"nftables.minSyncPeriod":          "iptables-min-sync-period",
		"ipvs.syncPeriod":                 "ipvs-sync-period",
		"ipvs.minSyncPeriod":              "ipvs-min-sync-period",
		"ipvs.excludeCIDRs":               "ipvs-exclude-cidrs",
		"ipvs.tcpTimeout":                 "ipvs-tcp-timeout",
		"ipvs.tcpFinTimeout":              "ipvs-tcpfin-timeout",
		"ipvs.udpTimeout":                 "ipvs-udp-timeout",
		"conntrack.maxPerCore":            "conntrack-max-per-core",
		"conntrack.min":                   "conntrack-min",
		"conntrack.tcpEstablishedTimeout": "conntrack-tcp-timeout-established",
		"conntrack.tcpCloseWaitTimeout":   "conntrack-tcp-timeout-close-wait",
		"conntrack.udpTimeout":            "conntrack-udp-timeout",
		"conntrack.udpStreamTimeout":      "conntrack-udp-timeout-stream",
	}[field]
}
