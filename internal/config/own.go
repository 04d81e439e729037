package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// ownFlags holds Fairlead's own flags. They apply in addition to --config, because
// kube-proxy's file has no fields for them.
type ownFlags struct {
	resetGone      bool
	noTakeover     bool
	noNodeExternal bool
	startupTaint   string
	drainGrace     time.Duration
	manifestsEmpty string
	dns            dnsFlags
	userspace      Userspace
	offload        offloadFlags
	serviceMetrics int
}

// mostServiceMetrics bounds the rows that a scraper must handle: the maximum is a hundred thousand rows of Services and
// endpoints, each with several numbers.
const mostServiceMetrics = 10_000

// DefaultStartupTaint is the key that deploy/ and the pages use.
const DefaultStartupTaint = "fairlead.dev/agent-not-ready"

// taintKey is the syntax of a taint's key: a name, optionally preceded by a domain and a
// slash.
const taintKey = `^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`

func (f *Flags) fillTaint(c *Config, v *validator) {
	key := f.own.startupTaint
	c.StartupTaint = key
	switch {
	case key == "":
	case !regexp.MustCompile(taintKey).MatchString(key) || len(key) > 253+1+63:
		v.badOwn("startup-taint", key, "must be the key of a taint, such as "+DefaultStartupTaint+", without a value or an effect")
	case f.manifests != "":
		v.badOwn("startup-taint", key, "cannot be given together with --manifests: only an API server has Nodes with taints")
	}
}

// ownNames returns the flags that --config does not override.
func ownNames() []string {
	return append(slices.Concat(dnsNames(), userspaceNames(), offloadNames()), "manifests", "manifests-empty", "reset-gone-endpoints", "iptables-backend", "no-takeover", "no-external-ips-of-node", "startup-taint", "ipvs-drain-grace", "service-metrics")
}

func (f *Flags) addOwn(fs *pflag.FlagSet) {
	o := &f.own
	fs.BoolVar(&o.resetGone, "reset-gone-endpoints", false, "end open TCP connections to endpoints that no longer exist; connections to terminating endpoints continue")
	fs.BoolVar(&o.noTakeover, "no-takeover", false, "keep the rules that kube-proxy, another mode or another iptables backend left here, instead of removing them once the agent's rules are in the kernel")
	fs.BoolVar(&o.noNodeExternal, "no-external-ips-of-node", false, "do not serve an address of spec.externalIPs while it is an address of this node; by default, as in kube-proxy, the Service takes its ports of that address from the node")
	fs.StringVar(&o.startupTaint, "startup-taint", "", "key of a taint that is removed from this node once Services work on it, for instance "+DefaultStartupTaint+"; empty: none. Needs the right to patch nodes")
	fs.StringVar(&o.manifestsEmpty, "manifests-empty", "keep", "meaning of a --manifests folder without a manifest at the start: keep what an earlier run left in the kernel, or delete it")
	fs.DurationVar(&o.drainGrace, "ipvs-drain-grace", 15*time.Minute, "how long a removed endpoint keeps its open TCP and SCTP connections, without new ones; 0: they end at once; and how long connections of ipvs mode continue after a change to another mode")
	fs.IntVar(&o.serviceMetrics, "service-metrics", 0, "count connections, refusals and bytes by Service, with rows in /metrics for this number of the busiest Service ports and ten times as many endpoints, the others summed; 0: count nothing. Counting costs some microseconds of CPU for each new connection (docs/metrics.md)")
	o.dns.add(fs)
	o.userspace.add(fs)
	o.offload.add(fs)
}

// fillOwn validates Fairlead's own settings and sets them in c.
func (f *Flags) fillOwn(c *Config, v *validator) {
	o := &f.own
	c.ResetGoneEndpoints, c.NoTakeover, c.NoExternalIPsOfNode = o.resetGone, o.noTakeover, o.noNodeExternal
	if c.ManifestsEmptyDeletes = o.manifestsEmpty == "delete"; !c.ManifestsEmptyDeletes && o.manifestsEmpty != "keep" {
		v.badOwn("manifests-empty", o.manifestsEmpty, "must be keep or delete")
	}
	for _, flag := range []string{"kubeconfig", "master"} { // a kubeconfig in the file is only reported as a setting without effect
		if f.manifests != "" && f.fs.Changed(flag) && (f.file == "" || flag == "master") {
			v.badOwn("manifests", f.manifests, "cannot be given together with --"+flag+": Services come from a folder or from an API server")
		}
	}
	f.fillTaint(c, v)
	if o.drainGrace < 0 {
		v.badOwn("ipvs-drain-grace", o.drainGrace.String(), "must not be negative")
	}
	c.IPVS.DrainGrace = o.drainGrace
	if c.ServiceMetrics = o.serviceMetrics; c.ServiceMetrics < 0 || c.ServiceMetrics > mostServiceMetrics {
		v.badOwn("service-metrics", strconv.Itoa(o.serviceMetrics), fmt.Sprintf("must be within 0 and %d", mostServiceMetrics))
	}
	if o.serviceMetrics > 0 && c.Mode == "userspace" {
		v.warnings = append(v.warnings, "--service-metrics has no effect in userspace mode, which counts all Services together")
	}
	c.DNS = o.dns.fill(v)
	c.Userspace = o.userspace.fill(v)
}

func (v *validator) badOwn(flag, value, reason string) {
	v.errs = append(v.errs, &FieldError{Field: flag, Flag: flag, Value: value, Reason: reason})
}
