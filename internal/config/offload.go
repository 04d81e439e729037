package config

import (
	"path"
	"strconv"

	"github.com/spf13/pflag"
)

// offloadGate is KEP-4963's. It is an alpha gate there, so it is off unless asked for.
const offloadGate = "KubeProxyAcceleration"

// offloadThreshold is KEP-4963's default.
const offloadThreshold = 20

// Offload are the settings of the acceleration (KEP-4963).
type Offload struct {
	// Threshold: connections to Services of more packets are taken past the rules. 0: none.
	Threshold int
	// Why says why Threshold is 0 although acceleration was asked for.
	Why              string
	Include, Exclude []string // patterns of devices; no Include: all
}

// offloadFlags are its flags as they are read.
type offloadFlags struct {
	threshold        int
	include, exclude []string
}

func offloadNames() []string {
	return []string{"offload-packet-threshold", "offload-interfaces", "offload-exclude-interfaces"}
}

func (o *offloadFlags) add(fs *pflag.FlagSet) {
	fs.IntVar(&o.threshold, "offload-packet-threshold", offloadThreshold, "with --feature-gates="+offloadGate+"=true: packets after which a connection to a Service is taken past the rules by the kernel's fast path (nftables and iptables modes); 0: never")
	fs.StringSliceVar(&o.include, "offload-interfaces", nil, "devices between which connections are accelerated, patterns such as eth*; empty: all that are up")
	fs.StringSliceVar(&o.exclude, "offload-exclude-interfaces", nil, "devices that take no part in it, patterns too")
}

// fillOffload checks and takes over the settings. The flag goes before the field of the file.
func (f *Flags) fillOffload(c *Config, w *wire, v *validator) {
	o := &f.own.offload
	c.Offload = Offload{Threshold: o.threshold, Include: o.include, Exclude: o.exclude}
	given := f.fs.Changed("offload-packet-threshold")
	if w.OffloadPacketThreshold != nil && !given {
		c.Offload.Threshold, given = int(*w.OffloadPacketThreshold), true
	}
	if n := c.Offload.Threshold; n < 0 || n > 1<<31-1 {
		v.badOwn("offload-packet-threshold", strconv.Itoa(n), "must be within 0 and 2147483647")
	}
	for flag, list := range map[string][]string{"offload-interfaces": o.include, "offload-exclude-interfaces": o.exclude} {
		for _, pattern := range list {
			if _, err := path.Match(pattern, ""); err != nil {
				v.badOwn(flag, pattern, "is no pattern: a [ is not closed")
			}
		}
	}
	switch {
	case !c.FeatureGates[offloadGate]:
		if given && c.Offload.Threshold > 0 {
			v.warnings = append(v.warnings, "connections to Services are not accelerated: --offload-packet-threshold needs --feature-gates="+offloadGate+"=true")
		}
		c.Offload.Threshold = 0
	case c.Offload.Threshold == 0:
	case c.Mode == "ipvs":
		c.Offload.Threshold, c.Offload.Why = 0, "not in ipvs mode, whose connections would stall on the kernel's fast path"
	case c.Mode == "userspace":
		c.Offload.Threshold, c.Offload.Why = 0, "not in userspace mode, whose connections the agent carries itself"
	}
	if c.Offload.Why != "" {
		v.warnings = append(v.warnings, "connections to Services are not accelerated: "+c.Offload.Why)
	}
}
