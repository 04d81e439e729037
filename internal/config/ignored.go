package config

import (
	"slices"
	"strings"
)

// withoutEffect says, one line each, which settings were given and do nothing
// here, so that nobody waits for them to act.
func (f *Flags) withoutEffect(c *Config, w *wire) []string {
	var names []string
	add := func(given bool, name string) {
		if given {
			names = append(names, name)
		}
	}
	for _, flag := range []string{
		"vmodule", "log-flush-frequency", "log-text-split-stream", "log-text-info-buffer-size",
		"log-json-split-stream", "log-json-info-buffer-size", "boot-id-file", "machine-id-file",
		"config-sync-period", "show-hidden-metrics-for-version",
	} {
		ownToFlags := strings.HasPrefix(flag, "log-") || flag == "vmodule" || flag == "boot-id-file" || flag == "machine-id-file"
		add(f.fs.Changed(flag) && (ownToFlags || f.file == ""), "--"+flag)
	}
	if f.file == "" {
		names = append(names, f.otherModes(c.Mode)...)
	} else {
		add(len(w.Logging.VModule) > 0, "logging.vmodule")
		add(w.PortRange != "", "portRange")
		add(w.Winkernel != wireWinkernel{}, "winkernel")
		add(w.WindowsRunAsService, "windowsRunAsService")
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []string{"accepted without effect in " + c.Mode + " mode here: " + strings.Join(names, " ")}
}

// otherModes names the given flags that act only in another mode.
func (f *Flags) otherModes(mode string) []string {
	only := map[string][]string{
		"ipvs": {
			"ipvs-scheduler", "ipvs-exclude-cidrs", "ipvs-strict-arp", "ipvs-tcp-timeout", "ipvs-tcpfin-timeout",
			"ipvs-udp-timeout", "ipvs-sync-period", "ipvs-min-sync-period",
		},
		"iptables": {"iptables-localhost-nodeports", "iptables-backend"},
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
