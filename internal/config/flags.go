package config

import (
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Flags is the command line. Call Register, parse with pflag, then call Load.
type Flags struct {
	fs   *pflag.FlagSet
	wire wire // flags that are fields of the configuration file too
	read wire // the configuration file before defaults; zero if there is none

	file, writeTo, version    string
	master, manifests         string
	hostname                  string
	iptablesBackend           string
	healthz, metrics          string
	healthzPort, metricsPort  int
	cleanup, initOnly         bool
	masqueradeAll             bool
	syncPeriod, minSyncPeriod time.Duration // every mode but ipvs
	ipvsSync, ipvsMinSync     time.Duration
	verbosity                 uint32
	logFormat                 string
	gates                     map[string]string
	ignored                   ignoredFlags
	own                       ownFlags
}

// ignoredFlags exist so that a command line made for kube-proxy is accepted.
type ignoredFlags struct {
	vmodule, textBuffer, jsonBuffer string
	flush                           time.Duration
	textSplit, jsonSplit            bool
	bootID, machineID               string
}

// Register adds every flag of kube-proxy 1.36, with its name and meaning, and
// Fairlead's own flags to fs. Names may be written with underscores, as in
// kube-proxy.
func Register(fs *pflag.FlagSet) *Flags {
	f := &Flags{fs: fs}
	f.wire.setDefaults()
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	f.addActions(fs)
	f.addClient(fs)
	f.addServers(fs)
	f.addTraffic(fs)
	f.addSync(fs)
	f.addIPVS(fs)
	f.addConntrack(fs)
	f.addLogging(fs)
	f.addOwn(fs)
	return f
}

func (f *Flags) addActions(fs *pflag.FlagSet) {
	fs.StringVar(&f.file, "config", "", "read settings from this KubeProxyConfiguration file; other flags are then ignored, except logging, --hostname-override and Fairlead's own")
	fs.StringVar(&f.writeTo, "write-config-to", "", "write the resulting configuration to this file and exit")
	fs.BoolVar(&f.cleanup, "cleanup", false, "remove everything that Fairlead wrote on this node and exit (same as the command cleanup)")
	fs.BoolVar(&f.initOnly, "init-only", false, "do only what needs full privilege (sysctls) and exit; afterwards CAP_NET_ADMIN is enough")
	fs.StringVar(&f.version, "version", "", "print the version and exit")
	fs.Lookup("version").NoOptDefVal = "true"
	fs.StringVar(&f.manifests, "manifests", "", "read Services and EndpointSlices from the YAML files in this folder instead of an API server")
}

func (f *Flags) addClient(fs *pflag.FlagSet) {
	c := &f.wire.ClientConnection
	fs.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig file for the API server; empty: the cluster this pod runs in")
	fs.StringVar(&f.master, "master", "", "address of the API server, instead of that in the kubeconfig")
	fs.StringVar(&c.ContentType, "kube-api-content-type", c.ContentType, "content type of requests to the API server")
	fs.Float32Var(&c.QPS, "kube-api-qps", c.QPS, "requests per second to the API server")
	fs.Int32Var(&c.Burst, "kube-api-burst", c.Burst, "burst of requests to the API server")
	fs.StringVar(&f.hostname, "hostname-override", "", "name of this node's Node object; empty: the host's name")
	fs.DurationVar(asTime(&f.wire.ConfigSyncPeriod), "config-sync-period", 15*time.Minute, "accepted for kube-proxy's sake; a watch needs no periodic refresh here")
	fs.StringToStringVar(&f.gates, "feature-gates", nil, "Kubernetes feature gates, name=true or name=false, separated by commas; any name is accepted, with a warning for one that Kubernetes 1.36 does not know")
}

func (f *Flags) addServers(fs *pflag.FlagSet) {
	w := &f.wire
	fs.StringVar(&w.BindAddress, "bind-address", w.BindAddress, "the node's primary IP; unspecified: taken from the Node object. Nothing binds to it")
	fs.BoolVar(&w.BindAddressHardFail, "bind-address-hard-fail", false, "exit when a listener cannot bind, instead of trying again every 5 s")
	fs.StringVar(&f.healthz, "healthz-bind-address", w.HealthzBindAddress, "IP or IP:port of the health server; empty: off")
	fs.StringVar(&f.metrics, "metrics-bind-address", w.MetricsBindAddress, "IP or IP:port of the metrics server; empty: off")
	fs.IntVar(&f.healthzPort, "healthz-port", healthzPort, "port of the health server; 0: off")
	fs.IntVar(&f.metricsPort, "metrics-port", metricsPort, "port of the metrics server; 0: off")
	_ = fs.MarkDeprecated("healthz-port", "use --healthz-bind-address")
	_ = fs.MarkDeprecated("metrics-port", "use --metrics-bind-address")
	fs.BoolVar(&w.EnableProfiling, "profiling", false, "serve /debug/pprof and /debug/flags/v on the metrics server")
	fs.StringVar(&w.ShowHiddenMetricsForVersion, "show-hidden-metrics-for-version", "", "accepted: empty or the previous minor version; there are no hidden metrics")
	fs.Int32Var(w.OOMScoreAdj, "oom-score-adj", *w.OOMScoreAdj, "oom_score_adj of this process, -1000 to 1000")
}

func (f *Flags) addTraffic(fs *pflag.FlagSet) {
	w := &f.wire
	fs.StringVar(&w.Mode, "proxy-mode", w.Mode, "how Services are programmed: nftables, iptables, ipvs, userspace (needs no privilege), or auto (the mode that fairlead probe recommends)")
	fs.StringVar(&w.ClusterCIDR, "cluster-cidr", "", "pod range of the cluster, or one of each family separated by a comma")
	fs.StringVar(&w.DetectLocalMode, "detect-local-mode", w.DetectLocalMode, "how pod traffic is recognised: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	fs.StringVar(&w.DetectLocal.BridgeInterface, "pod-bridge-interface", "", "the bridge of --detect-local-mode=BridgeInterface")
	fs.StringVar(&w.DetectLocal.InterfaceNamePrefix, "pod-interface-name-prefix", "", "the prefix of --detect-local-mode=InterfaceNamePrefix")
	fs.StringSliceVar(&w.NodePortAddresses, "nodeport-addresses", nil, "CIDRs of the node addresses on which NodePorts answer, or the word primary; empty: primary in nftables mode, else all")
	fs.BoolVar(&f.masqueradeAll, "masquerade-all", false, "masquerade all traffic to Services")
	fs.Int32Var(w.IPTables.MasqueradeBit, "iptables-masquerade-bit", *w.IPTables.MasqueradeBit, "bit of the packet mark that asks for masquerading, 0 to 31 (iptables and ipvs modes)")
	fs.BoolVar(w.IPTables.LocalhostNodePorts, "iptables-localhost-nodeports", true, "answer NodePorts on 127.0.0.1 and ::1 too")
	fs.StringVar(&f.iptablesBackend, "iptables-backend", "auto", "which iptables to write: legacy, nft, or auto, the one that this host uses (iptables mode)")
}

func (f *Flags) addSync(fs *pflag.FlagSet) {
	const minHelp = "least pause between two syncs; 0, the default here (kube-proxy: 1s), writes each change at once: the cost of a sync depends on the changes, not on the number of Services"
	fs.DurationVar(&f.syncPeriod, "iptables-sync-period", 30*time.Second, "/healthz fails when a change has waited for twice this long; the kernel is audited against the desired state each hour, or at this interval if it is longer; every mode but ipvs")
	fs.DurationVar(&f.minSyncPeriod, "iptables-min-sync-period", 0, minHelp+"; every mode but ipvs")
	fs.DurationVar(&f.ipvsSync, "ipvs-sync-period", 30*time.Second, "as --iptables-sync-period, in ipvs mode")
	fs.DurationVar(&f.ipvsMinSync, "ipvs-min-sync-period", 0, "as --iptables-min-sync-period, in ipvs mode")
}

func (f *Flags) addIPVS(fs *pflag.FlagSet) {
	v := &f.wire.IPVS
	fs.StringVar(&v.Scheduler, "ipvs-scheduler", "", "IPVS scheduler; empty: rr")
	fs.StringSliceVar(&v.ExcludeCIDRs, "ipvs-exclude-cidrs", nil, "virtual servers in these CIDRs are never deleted")
	fs.BoolVar(&v.StrictARP, "ipvs-strict-arp", false, "set arp_ignore to 1 and arp_announce to 2")
	fs.DurationVar(asTime(&v.TCPTimeout), "ipvs-tcp-timeout", 0, "timeout of idle TCP connections; 0: unchanged")
	fs.DurationVar(asTime(&v.TCPFinTimeout), "ipvs-tcpfin-timeout", 0, "timeout of TCP connections after a FIN; 0: unchanged")
	fs.DurationVar(asTime(&v.UDPTimeout), "ipvs-udp-timeout", 0, "timeout of UDP flows; 0: unchanged")
}

func (f *Flags) addConntrack(fs *pflag.FlagSet) {
	c := &f.wire.Conntrack
	fs.Int32Var(c.MaxPerCore, "conntrack-max-per-core", *c.MaxPerCore, "conntrack entries to allow for each CPU; 0: the limit stays unchanged, and --conntrack-min has no effect")
	fs.Int32Var(c.Min, "conntrack-min", *c.Min, "least number of conntrack entries to allow")
	fs.DurationVar(asTime(c.TCPEstablishedTimeout), "conntrack-tcp-timeout-established", 24*time.Hour, "timeout of idle established TCP flows; 0: unchanged")
	fs.DurationVar(asTime(c.TCPCloseWaitTimeout), "conntrack-tcp-timeout-close-wait", time.Hour, "timeout of TCP flows in CLOSE_WAIT; 0: unchanged")
	fs.BoolVar(&c.TCPBeLiberal, "conntrack-tcp-be-liberal", false, "let conntrack accept TCP packets outside the window")
	fs.DurationVar(asTime(&c.UDPTimeout), "conntrack-udp-timeout", 0, "timeout of UDP flows without a reply; 0: unchanged")
	fs.DurationVar(asTime(&c.UDPStreamTimeout), "conntrack-udp-timeout-stream", 0, "timeout of UDP flows with replies; 0: unchanged")
}

func (f *Flags) addLogging(fs *pflag.FlagSet) {
	i := &f.ignored
	fs.Uint32VarP(&f.verbosity, "v", "v", 0, "how much to log; 0: changes of state and problems only")
	fs.StringVar(&f.logFormat, "logging-format", "text", "text or json")
	const taken = "accepted for kube-proxy's sake, without effect"
	fs.StringVar(&i.vmodule, "vmodule", "", taken)
	fs.DurationVar(&i.flush, "log-flush-frequency", 5*time.Second, taken)
	fs.BoolVar(&i.textSplit, "log-text-split-stream", false, taken)
	fs.StringVar(&i.textBuffer, "log-text-info-buffer-size", "0", taken)
	fs.BoolVar(&i.jsonSplit, "log-json-split-stream", false, taken)
	fs.StringVar(&i.jsonBuffer, "log-json-info-buffer-size", "0", taken)
	fs.StringVar(&i.bootID, "boot-id-file", "", taken)
	fs.StringVar(&i.machineID, "machine-id-file", "", taken)
}

func asTime(d *duration) *time.Duration { return (*time.Duration)(d) }
