package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// withoutEffect returns a one-line warning that names the settings that were set
// and have no effect here, so that the operator does not rely on them.
func (f *Flags) withoutEffect(c *Config, w *wire) []string {
	var names []string
	for _, flag := range neverActing() {
		ofFile := flag == "config-sync-period" || flag == "show-hidden-metrics-for-version"
		if f.fs.Changed(flag) && (f.file == "" || !ofFile) {
			names = append(names, "--"+flag)
		}
	}
	if f.file == "" {
		names = append(names, f.otherModes(c.Mode)...)
	} else {
		names = append(names, f.idleFields(c.Mode)...)
	}
	prefix := "--feature-gates="
	if f.file != "" {
		prefix = "featureGates."
	}
	for gate := range w.FeatureGates {
		if _, known := c.FeatureGates[gate]; known && gate != "AllowServiceExternalIPs" && gate != offloadGate {
			names = append(names, prefix+gate)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []string{"accepted without effect in " + c.Mode + " mode here: " + strings.Join(names, " ")}
}

// neverActing returns the flags that exist only so that kube-proxy's command lines
// are accepted.
func neverActing() []string {
	return []string{
		"vmodule", "log-flush-frequency", "log-text-split-stream", "log-text-info-buffer-size",
		"log-json-split-stream", "log-json-info-buffer-size", "boot-id-file", "machine-id-file",
		"config-sync-period", "show-hidden-metrics-for-version",
	}
}

// idleFields returns the fields of the file that differ from the default and have
// no effect in this mode.
func (f *Flags) idleFields(mode string) []string {
	var names []string
	add := func(idle bool, name string) {
		if idle {
			names = append(names, name)
		}
	}
	w := &f.read
	add(w.ClientConnection.Kubeconfig != "" && f.manifests != "", "clientConnection.kubeconfig")
	add(w.ClientConnection.AcceptContentTypes != "", "clientConnection.acceptContentTypes")
	add(w.ConfigSyncPeriod != 0 && w.ConfigSyncPeriod != duration(15*time.Minute), "configSyncPeriod")
	add(len(w.Logging.VModule) > 0, "logging.vmodule")
	add(!slices.Contains([]string{"<nil>", "0", "0s", "5s", "5000000000", "5e+09"}, fmt.Sprint(w.Logging.FlushFrequency)), "logging.flushFrequency")
	add(!unset(w.Logging.Options), "logging.options")
	add(w.ShowHiddenMetricsForVersion != "", "showHiddenMetricsForVersion")
	add(w.PortRange != "", "portRange")
	add(w.Winkernel != wireWinkernel{}, "winkernel")
	add(w.WindowsRunAsService, "windowsRunAsService")
	if mode != "ipvs" {
		names = append(names, given("ipvs", w.IPVS)...)
	}
	if mode != "nftables" {
		names = append(names, given("nftables", w.NFTables)...)
	}
	if mode == "nftables" { // ipvs mode uses the masquerading of this section, every mode localhostNodePorts
		section := w.IPTables
		section.LocalhostNodePorts = nil
		names = append(names, given("iptables", section)...)
	}
	return names
}

// unset reports whether the options of the log formats are kube-proxy's defaults.
func unset(options map[string]any) bool {
	for _, format := range options {
		of, ok := format.(map[string]any)
		if !ok {
			return false
		}
		for _, value := range of {
			if !slices.Contains([]any{nil, false, "0", "", 0.0, int64(0)}, value) {
				return false
			}
		}
	}
	return true
}

// given returns the fields of a section of the file whose values differ from the
// defaults that kube-proxy writes out.
func given(section string, fields any) (names []string) {
	defaults := map[string]any{"masqueradeBit": int32(14), "syncPeriod": duration(30 * time.Second), "minSyncPeriod": duration(time.Second)}
	v := reflect.ValueOf(fields)
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Tag.Get("json"), v.Field(i)
		if field.Kind() == reflect.Pointer && !field.IsNil() {
			field = field.Elem()
		}
		empty := field.IsZero() || field.Kind() == reflect.Slice && field.Len() == 0
		if !empty && defaults[name] != field.Interface() {
			names = append(names, section+"."+name)
		}
	}
	return names
}

// otherModes returns the flags that were set and have an effect only in another
// mode.
func (f *Flags) otherModes(mode string) []string {
	only := map[string][]string{
		"ipvs": {
			"ipvs-scheduler", "ipvs-exclude-cidrs", "ipvs-strict-arp", "ipvs-tcp-timeout", "ipvs-tcpfin-timeout",
			"ipvs-udp-timeout", "ipvs-sync-period", "ipvs-min-sync-period",
		},
		"iptables":  {"iptables-backend"},
		"userspace": userspaceNames(),
	}
	var names []string
	for of, flags := range only {
		for _, flag := range flags {
			if of != mode && f.fs.Changed(flag) {
				names = append(names, "--"+flag)
			}
		}
	}
	if mode == "ipvs" && f.fs.Changed("iptables-sync-period") {
		names = append(names, "--iptables-sync-period")
	}
	if mode == "ipvs" && f.fs.Changed("iptables-min-sync-period") {
		names = append(names, "--iptables-min-sync-period")
	}
	if mode == "nftables" && f.fs.Changed("iptables-masquerade-bit") {
		names = append(names, "--iptables-masquerade-bit")
	}
	return names
}

// modeTaken returns a warning for users of kube-proxy if no mode is set: it states
// the mode that is used and what differs from kube-proxy.
func (f *Flags) modeTaken(c *Config) []string {
	if f.modeGiven() || !f.fromKubeProxy() {
		return nil
	}
	text := "mode is not set: using nftables, where kube-proxy 1.36 uses iptables on Linux."
	if c.NodePorts.Primary && !slices.Contains(f.given(), primary) {
		text += " NodePorts answer on the node's primary addresses only (nodePortAddresses: primary), and not on 127.0.0.1."
	}
	return []string{text + " To confirm this set mode: nftables (--proxy-mode=nftables); for kube-proxy's default, iptables"}
}

func (f *Flags) modeGiven() bool {
	if f.file != "" {
		return f.read.Mode != ""
	}
	return f.fs.Changed("proxy-mode") && f.wire.Mode != "" // an empty value counts as not set, as in the file
}

// given returns the node port addresses as they were set.
func (f *Flags) given() []string {
	if f.file != "" {
		return f.read.NodePortAddresses
	}
	return f.wire.NodePortAddresses
}

// fromKubeProxy reports whether the settings seem to be made for kube-proxy: there
// is a configuration file, or a flag that is neither Fairlead's own nor a neutral
// one.
func (f *Flags) fromKubeProxy() bool {
	if f.file != "" {
		return true
	}
	neutral := append(ownNames(), "v", "logging-format", "kubeconfig", "master", "hostname-override", "version", "help",
		"cleanup", "init-only", "write-config-to")
	found := false
	f.fs.Visit(func(fl *pflag.Flag) { found = found || !slices.Contains(neutral, fl.Name) })
	return found
}
