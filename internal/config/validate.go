package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	netutils "k8s.io/utils/net"
)

// primary is the value of nodePortAddresses for the Node's own addresses.
const primary = "primary"

// FieldError is an error in one setting.
type FieldError struct {
	Field  string // its path in the file, "iptables.masqueradeBit"
	Flag   string // the flag that set it; "" if it was set by file, or if there is no flag
	Value  string
	Reason string
}

// Error implements error.
func (e *FieldError) Error() string {
	name := e.Field
	if e.Flag != "" {
		name = "--" + e.Flag
	}
	return fmt.Sprintf("configuration: %s: %q %s", name, e.Value, e.Reason)
}

// validator converts the wire form to typed values and collects all faults.
type validator struct {
	fromFile bool
	errs     []error
	warnings []string
}

func (v *validator) bad(field string, value any, reason string) {
	e := &FieldError{Field: field, Value: fmt.Sprint(value), Reason: reason}
	if !v.fromFile {
		e.Flag = flagOf(field)
	}
	v.errs = append(v.errs, e)
}

func (v *validator) fill(c *Config, w *wire, p Params) {
	c.Mode = v.mode(w.Mode, p.Modes)
	v.fillClient(c, w)
	v.fillServers(c, w)
	v.fillSection(c, w)
	v.fillDetectLocal(c, w)
	v.fillNodePorts(c, w.NodePortAddresses)
	v.fillConntrack(c, &w.Conntrack)
	v.fillIPVS(c, &w.IPVS)
	c.OOMScoreAdj = int(*w.OOMScoreAdj)
	if c.OOMScoreAdj < -1000 || c.OOMScoreAdj > 1000 {
		v.bad("oomScoreAdj", c.OOMScoreAdj, "must be within -1000 and 1000")
	}
	var faults, unknown []string
	c.FeatureGates, faults, unknown = resolveGates(w.FeatureGates)
	if len(unknown) > 0 {
		v.warnings = append(v.warnings, "feature gates that Kubernetes 1.36 does not know are ignored: "+strings.Join(unknown, " "))
	}
	for _, fault := range faults {
		name, reason, _ := strings.Cut(fault, ": ")
		v.bad("featureGates", name, "is "+reason)
	}
	c.Logging = Logging{Format: w.Logging.Format, Verbosity: int(min(w.Logging.Verbosity, math.MaxInt32))}
	if c.Logging.Format != "text" && c.Logging.Format != "json" {
		v.bad("logging.format", c.Logging.Format, "must be text or json")
	}
	if s := w.ShowHiddenMetricsForVersion; s != "" && s != "1.35" {
		v.bad("showHiddenMetricsForVersion", s, "must be empty or the previous minor version, 1.35")
	}
}

func (v *validator) mode(mode string, built []string) string {
	known := []string{"nftables", "iptables", "ipvs", "userspace"}
	switch {
	case slices.Contains(built, mode):
	case slices.Contains(known, mode):
		v.bad("mode", mode, "is not built yet in this release: it must be one of "+strings.Join(built, ", "))
	default:
		v.bad("mode", mode, "must be one of "+strings.Join(built, ", "))
	}
	return mode
}

func (v *validator) fillClient(c *Config, w *wire) {
	c.Client = Client{
		Kubeconfig: w.ClientConnection.Kubeconfig, ContentType: w.ClientConnection.ContentType,
		AcceptContentTypes: w.ClientConnection.AcceptContentTypes,
		QPS:                w.ClientConnection.QPS, Burst: int(w.ClientConnection.Burst),
	}
	if c.Client.Burst < 0 {
		v.bad("clientConnection.burst", c.Client.Burst, "must not be negative")
	}
	if c.ConfigSyncPeriod = time.Duration(w.ConfigSyncPeriod); c.ConfigSyncPeriod <= 0 {
		v.bad("configSyncPeriod", c.ConfigSyncPeriod, "must be greater than 0")
	}
}

func (v *validator) fillServers(c *Config, w *wire) {
	var ok bool
	if c.BindAddress, ok = parseAddr(w.BindAddress); !ok {
		v.bad("bindAddress", w.BindAddress, "is not an IP address")
	}
	c.BindAddressHardFail, c.Profiling = w.BindAddressHardFail, w.EnableProfiling
	c.Healthz = v.server("healthzBindAddress", w.HealthzBindAddress)
	c.Metrics = v.server("metricsBindAddress", w.MetricsBindAddress)
}

func (v *validator) server(field, value string) netip.AddrPort {
	host, port, err := net.SplitHostPort(value)
	if err != nil {
		v.bad(field, value, "must be IP or IP:port")
		return netip.AddrPort{}
	}
	addr, ok := parseAddr(host)
	if !ok {
		v.bad(field, value, "has no valid IP address")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		v.bad(field, value, "has no port within 1 and 65535")
	}
	return netip.AddrPortFrom(addr, uint16(n))
}

// fillSection reads the section of the mode. As in kube-proxy, ipvs mode reads its
// masquerading from the iptables section.
func (v *validator) fillSection(c *Config, w *wire) {
	name, bit, sync, minSync := "iptables", *w.IPTables.MasqueradeBit, w.IPTables.SyncPeriod, w.IPTables.MinSyncPeriod
	c.MasqueradeAll, c.LocalhostNodePorts = w.IPTables.MasqueradeAll, *w.IPTables.LocalhostNodePorts
	switch w.Mode {
	case "nftables":
		name, bit, sync, minSync = "nftables", *w.NFTables.MasqueradeBit, w.NFTables.SyncPeriod, w.NFTables.MinSyncPeriod
		c.MasqueradeAll = w.NFTables.MasqueradeAll
	case "ipvs":
		name, sync, minSync = "ipvs", w.IPVS.SyncPeriod, w.IPVS.MinSyncPeriod
	}
	if bit < 0 || bit > 31 {
		v.bad(name+".masqueradeBit", bit, "must be within 0 and 31")
	}
	c.MasqueradeBit = uint8(bit & 31)
	c.SyncPeriod, c.MinSyncPeriod = time.Duration(sync), time.Duration(minSync)
	if c.SyncPeriod <= 0 {
		v.bad(name+".syncPeriod", c.SyncPeriod, "must be greater than 0")
	}
	if c.MinSyncPeriod < 0 {
		v.bad(name+".minSyncPeriod", c.MinSyncPeriod, "must not be negative")
	} else if c.MinSyncPeriod > c.SyncPeriod && c.SyncPeriod > 0 {
		v.bad(name+".minSyncPeriod", c.MinSyncPeriod, fmt.Sprintf("must not be greater than %s.syncPeriod, %s", name, c.SyncPeriod))
	}
}

// zeroPeriod refuses a period of 0 set by flag. In a file 0 means the default.
func (v *validator) zeroPeriod(fs *pflag.FlagSet, mode string, sync, ipvs duration) {
	if mode == "ipvs" {
		if ipvs == 0 && fs.Changed("ipvs-sync-period") {
			v.bad("ipvs.syncPeriod", 0, "must be greater than 0")
		}
		return
	}
	if sync == 0 && fs.Changed("iptables-sync-period") {
		v.bad("iptables.syncPeriod", 0, "must be greater than 0")
	}
}

func (v *validator) nodeName(override string, p Params) string {
	if override == "" {
		host, err := p.Hostname()
		if err != nil {
			v.bad("hostnameOverride", "", "is empty and the host's name cannot be read: "+err.Error())
		}
		override = host
	}
	name := strings.ToLower(strings.TrimSpace(override))
	if name == "" {
		v.bad("hostnameOverride", override, "is blank, and so is the host's name")
	}
	return name
}

// parseAddr parses an IP as kube-proxy does, leading zeros allowed.
func parseAddr(s string) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(s))
	return a.Unmap(), ok
}

// parseCIDR parses a CIDR as kube-proxy does, masked.
func parseCIDR(s string) (netip.Prefix, bool) {
	_, n, err := netutils.ParseCIDRSloppy(strings.TrimSpace(s))
	if err != nil {
		return netip.Prefix{}, false
	}
	a, _ := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a, ones), true
}
