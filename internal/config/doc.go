// Package config turns kube-proxy's flags and its KubeProxyConfiguration file
// into one Config: validated, with units in the types, never written to after
// Load returned it.
//
// cmd/fairlead registers the flags, calls Load once and hands the Config to
// app. The package starts no goroutine and logs nothing: what the operator
// should know comes back in Config.Warnings.
//
// Two defaults differ from kube-proxy on purpose: an empty mode means nftables
// (kube-proxy: iptables), and an empty minSyncPeriod means 0 (kube-proxy: 1 s),
// because a sync here costs what has changed and not what exists, so that
// holding changes back would only make them late.
package config
