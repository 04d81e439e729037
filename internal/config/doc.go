// Package config converts kube-proxy's flags and its KubeProxyConfiguration file to
// one Config. The Config is validated, has units in its types, and is immutable
// after Load returns it.
//
// cmd/fairlead registers the flags, calls Load once and passes the Config to app.
// The package starts no goroutine and logs nothing. Messages for the operator are
// returned in Config.Warnings.
//
// Two defaults differ from kube-proxy on purpose. An empty mode means nftables
// (kube-proxy: iptables). An empty minSyncPeriod means 0 (kube-proxy: 1 s), because
// the cost of a sync depends on the size of the change and not of the whole state,
// so that a delay would only make changes late.
package config
