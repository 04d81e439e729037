package config

import (
	"path"
	"slices"
	"strconv"

	"github.com/spf13/pflag"
)

// offloadGate is the feature gate of KEP-4963. It is an alpha gate there, so it is off
// by default.
const offloadGate = "KubeProxyAcceleration"

// offloadThreshold is the default of KEP-4963.
const offloadThreshold = 20

// Offload holds the settings of the acceleration (KEP-4963).
type Offload struct {
	// Threshold is the number of packets after which a connection to a Service bypasses the
	// rules. 0: acceleration is off.
	Threshold int
	// Why is the reason why Threshold is 0 although acceleration was requested.
	Why              string
	Include, Exclude []string // patterns of devices; no Include: all
	// ExcludeFile is a file with the addresses whose connections are not accelerated; "": there
	// is none.
	ExcludeFile string
	// SelfTest specifies when packets are sent to test the fast path before it is
	// used.
	SelfTest SelfTest
}

// SelfTest is the value of --offload-self-test.
type SelfTest string

// The conditions for the test of the fast path with packets.
const (
	SelfTestAuto   SelfTest = "auto" // on kernels that are known or suspected to be at fault
	SelfTestAlways SelfTest = "always"
	SelfTestNever  SelfTest = "never"
)

// offloadFlags holds the flags of Offload before validation.
type offloadFlags struct {
	threshold             int
	include, exclude      []string
	excludeFile, selfTest string
}

func offloadNames() []string {
	return []string{"offload-packet-threshold", "offload-interfaces", "offload-exclude-interfaces", "offload-exclude-file", "offload-self-test"}
}

func (o *offloadFlags) add(fs *pflag.FlagSet) {
	fs.IntVar(&o.threshold, "offload-packet-threshold", offloadThreshold, "with --feature-gates="+offloadGate+"=true: packets after which the kernel's fast path forwards a connection to a Service without the rules (nftables and iptables modes); 0: never")
	fs.StringSliceVar(&o.include, "offload-interfaces", nil, "devices between which connections are accelerated, patterns such as eth*; empty: all that are up")
	fs.StringSliceVar(&o.exclude, "offload-exclude-interfaces", nil, "devices that are excluded from acceleration, patterns too")
	fs.StringVar(&o.excludeFile, "offload-exclude-file", "", "file of addresses and prefixes, one per line, whose connections are never accelerated, as client, Service or endpoint; for policy engines. The file is watched; until it can be read nothing is accelerated")
	fs.StringVar(&o.selfTest, "offload-self-test", string(SelfTestAuto), "when to test with packets, in a network namespace of its own, that the fast path forwards translated connections: auto (on kernels that are known or suspected to break them), always, never (acceleration is then off on those kernels)")
}

// fillOffload validates the flags and sets c.Offload. The flag takes precedence over the
// field of the file.
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
		c.Offload.Threshold, c.Offload.Why = 0, "not supported in ipvs mode: its connections would stall on the kernel's fast path"
	case c.Mode == "userspace":
		c.Offload.Threshold, c.Offload.Why = 0, "not supported in userspace mode: the agent relays its connections itself"
	}
	if c.Offload.Why != "" {
		v.warnings = append(v.warnings, "connections to Services are not accelerated: "+c.Offload.Why)
	}
}

// check validates the flags that do not depend on other settings.
func (o *offloadFlags) check(v *validator) {
	if !slices.Contains([]SelfTest{SelfTestAuto, SelfTestAlways, SelfTestNever}, SelfTest(o.selfTest)) {
		v.badOwn("offload-self-test", o.selfTest, "must be auto, always or never")
	}
	for flag, list := range map[string][]string{"offload-interfaces": o.include, "offload-exclude-interfaces": o.exclude} {
		for _, pattern := range list {
			if _, err := path.Match(pattern, ""); err != nil {
				v.badOwn(flag, pattern, "is not a pattern: a [ is not closed")
			}
		}
	}
}
