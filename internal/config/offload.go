package config

import (
	"path"
	"slices"
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
	// ExcludeFile names the addresses whose connections are not accelerated; "": there is none.
	ExcludeFile string
	// SelfTest says when packets are sent to test the fast path before it is used.
	SelfTest SelfTest
}

// SelfTest is --offload-self-test.
type SelfTest string

// When the fast path is tested with packets.
const (
	SelfTestAuto   SelfTest = "auto" // on kernels that are known or suspected to be at fault
	SelfTestAlways SelfTest = "always"
	SelfTestNever  SelfTest = "never"
)

// offloadFlags are its flags as they are read.
type offloadFlags struct {
	threshold             int
	include, exclude      []string
	excludeFile, selfTest string
}

func offloadNames() []string {
	return []string{"offload-packet-threshold", "offload-interfaces", "offload-exclude-interfaces", "offload-exclude-file", "offload-self-test"}
}

func (o *offloadFlags) add(fs *pflag.FlagSet) {
	fs.IntVar(&o.threshold, "offload-packet-threshold", offloadThreshold, "with --feature-gates="+offloadGate+"=true: packets after which a connection to a Service is taken past the rules by the kernel's fast path (nftables and iptables modes); 0: never")
	fs.StringSliceVar(&o.include, "offload-interfaces", nil, "devices between which connections are accelerated, patterns such as eth*; empty: all that are up")
	fs.StringSliceVar(&o.exclude, "offload-exclude-interfaces", nil, "devices that take no part in it, patterns too")
	fs.StringVar(&o.excludeFile, "offload-exclude-file", "", "file of addresses and prefixes, one a line, whose connections are never accelerated, be it the client, the Service or the endpoint; for policy engines. It is watched; until it can be read nothing is accelerated")
	fs.StringVar(&o.selfTest, "offload-self-test", string(SelfTestAuto), "when to test with packets, in a network namespace of its own, that the fast path carries translated connections: auto (on kernels that are known or suspected to break them), always, never (those are then refused untested)")
}

// fillOffload checks and takes over the settings. The flag goes before the field of the file.
func (f *Flags) fillOffload(c *Config, w *wire, v *validator) {
	o := &f.own.offload
	c.Offload = Offload{Threshold: o.threshold, Include: o.include, Exclude: o.exclude, ExcludeFile: o.excludeFile, SelfTest: SelfTest(o.selfTest)}
	given := f.fs.Changed("offload-packet-threshold")
	if w.OffloadPacketThreshold != nil && !given {
		c.Offload.Threshold, given = int(*w.OffloadPacketThreshold), true
	}
	if n := c.Offload.Threshold; n < 0 || n > 1<<31-1 {
		v.badOwn("offload-packet-threshold", strconv.Itoa(n), "must be within 0 and 2147483647")
	}
	o.check(v)
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

// check checks the flags that stand alone.
func (o *offloadFlags) check(v *validator) {
	if !slices.Contains([]SelfTest{SelfTestAuto, SelfTestAlways, SelfTestNever}, SelfTest(o.selfTest)) {
		v.badOwn("offload-self-test", o.selfTest, "must be auto, always or never")
	}
	for flag, list := range map[string][]string{"offload-interfaces": o.include, "offload-exclude-interfaces": o.exclude} {
		for _, pattern := range list {
			if _, err := path.Match(pattern, ""); err != nil {
				v.badOwn(flag, pattern, "is no pattern: a [ is not closed")
			}
		}
	}
}
