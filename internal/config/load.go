package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// Load returns the Config of the parsed command line and, if --config names one, of
// the file. All faults are joined in one error: errors.As finds a *FieldError for
// each fault.
func (f *Flags) Load(p Params) (*Config, error) {
	c := &Config{
		Manifests: f.manifests, InitOnly: f.initOnly, Cleanup: f.cleanup, WriteConfigTo: f.writeTo,
		ShowVersion: f.version != "" && f.version != "false", File: f.file,
	}
	v := &validator{fromFile: f.file != ""}
	w, err := f.settings(c, v, p)
	if err != nil {
		return nil, err
	}
	v.fill(c, &w, p)
	if f.iptablesBackend != "auto" && c.IPTablesBackend == "" {
		c.IPTablesBackend = f.iptablesBackend
	}
	if !slices.Contains([]string{"auto", "legacy", "nft"}, f.iptablesBackend) {
		v.errs = append(v.errs, &FieldError{Field: "iptables-backend", Flag: "iptables-backend", Value: f.iptablesBackend, Reason: "must be auto, legacy or nft"})
	}
	c.Client.Master = f.master // not a field of the file; kube-proxy uses the flag in both cases
	if !f.modeGiven() {
		c.ModeBy = "default"
	}
	f.fillOwn(c, v)
	f.fillOffload(c, &w, v)
	f.switchOff(c)
	c.NodeName = v.nodeName(w.HostnameOverride, p)
	c.Warnings = append(c.Warnings, v.warnings...)
	c.Warnings = append(c.Warnings, f.modeTaken(c)...)
	c.Warnings = append(c.Warnings, f.withoutEffect(c, &w)...)
	c.wire = w
	f.fs.Visit(func(x *pflag.Flag) { c.given = append(c.given, x.Name+"="+shown(x)) })
	if len(v.errs) > 0 {
		return nil, errors.Join(v.errs...)
	}
	return c, nil
}

// shown returns a flag's value without the user and password that a URL may contain, because /flagz
// requires no password.
func shown(x *pflag.Flag) string {
	value := x.Value.String()
	if at := strings.LastIndex(value, "@"); x.Name == "master" && at >= 0 {
		return "xxxxx" + value[at:]
	}
	return value
}

// LoadFile is Load with --config as its only flag.
func (f *Flags) LoadFile(path string, p Params) (*Config, error) {
	f.file = path
	return f.Load(p)
}

// settings returns the wire form with defaults, from the file or the flags.
func (f *Flags) settings(c *Config, v *validator, p Params) (wire, error) {
	w, err := f.wire, error(nil)
	if f.file != "" {
		if w, c.Warnings, c.FileDigest, err = readFile(f.file); err != nil {
			return w, err
		}
		f.read = w
	}
	if w.Mode, err = f.choose(c, cmp.Or(w.Mode, "nftables"), p); err != nil {
		return w, err
	}
	if f.file != "" {
		if ignored := f.overruled(); len(ignored) > 0 {
			c.Warnings = append(c.Warnings, "ignored because --config is given: "+strings.Join(ignored, " "))
		}
	} else {
		f.fromFlags(v, &w)
	}
	if f.file == "" || f.fs.Changed("v") {
		w.Logging.Verbosity = f.verbosity
	}
	if f.file == "" || f.fs.Changed("logging-format") {
		w.Logging.Format = f.logFormat
	}
	if f.hostname != "" {
		w.HostnameOverride = strings.ToLower(strings.TrimSpace(f.hostname))
		if w.HostnameOverride == "" {
			v.bad("hostnameOverride", f.hostname, "must not be blank")
		}
	}
	w.setDefaults()
	return w, nil
}

// fromFlags copies the flags that are not fields of the file to the corresponding
// fields: periods and masquerading belong to the section of the chosen mode.
func (f *Flags) fromFlags(v *validator, w *wire) {
	w.HealthzBindAddress = addressOf(f.fs, "healthz", f.healthz, f.healthzPort)
	w.MetricsBindAddress = addressOf(f.fs, "metrics", f.metrics, f.metricsPort)
	sync, minSync := duration(f.syncPeriod), duration(f.minSyncPeriod)
	switch w.Mode {
	case "nftables":
		w.NFTables.SyncPeriod, w.NFTables.MinSyncPeriod, w.NFTables.MasqueradeAll = sync, minSync, f.masqueradeAll
	case "ipvs":
		w.IPVS.SyncPeriod, w.IPVS.MinSyncPeriod = duration(f.ipvsSync), duration(f.ipvsMinSync)
		w.IPTables.MasqueradeAll = f.masqueradeAll
	default:
		w.IPTables.SyncPeriod, w.IPTables.MinSyncPeriod, w.IPTables.MasqueradeAll = sync, minSync, f.masqueradeAll
	}
	v.zeroPeriod(f.fs, w.Mode, sync, duration(f.ipvsSync))
	w.FeatureGates = map[string]bool{}
	for name, s := range f.gates {
		on, err := strconv.ParseBool(s)
		if err != nil {
			v.bad("featureGates", name+"="+s, "must be true or false")
			continue
		}
		w.FeatureGates[name] = on
	}
}

// choose returns the mode to run in. It returns the requested mode unchanged if the process
// only prints settings or removes the rules of every mode.
func (f *Flags) choose(c *Config, asked string, p Params) (string, error) {
	if p.Choose == nil || f.cleanup || f.writeTo != "" || c.ShowVersion {
		return asked, nil
	}
	backend := f.iptablesBackend
	if backend == "auto" {
		backend = ""
	}
	chosen, err := p.Choose(asked, backend)
	mode, backend, _ := strings.Cut(chosen, "-")
	c.IPTablesBackend = backend
	return mode, err
}

// addressOf returns the listen address set by flags. "" means the default here.
// switchOff handles an explicit "".
func addressOf(fs *pflag.FlagSet, name, addr string, port int) string {
	if fs.Changed(name + "-bind-address") {
		return withPort(addr, port)
	}
	if fs.Changed(name+"-port") && port != 0 {
		host, _, _ := strings.Cut(addr, ":")
		return withPort(host, port)
	}
	return ""
}

// switchOff turns off a server whose address flag is empty or whose port flag is 0.
// A file cannot do that: there "" means the default, as in kube-proxy.
func (f *Flags) switchOff(c *Config) {
	if f.file != "" {
		return
	}
	off := func(name, addr string, port int) bool {
		return f.fs.Changed(name+"-bind-address") && addr == "" || port == 0
	}
	if off("healthz", f.healthz, f.healthzPort) {
		c.Healthz = netip.AddrPort{}
	}
	if off("metrics", f.metrics, f.metricsPort) {
		c.Metrics = netip.AddrPort{}
	}
}

// overruled returns the flags that were set and that a configuration file
// overrides.
func (f *Flags) overruled() []string {
	obeyed := []string{
		"config", "cleanup", "init-only", "write-config-to", "version", "help", "master", "hostname-override",
		"v", "logging-format", "vmodule",
	}
	obeyed = append(obeyed, ownNames()...)
	var names []string
	f.fs.Visit(func(fl *pflag.Flag) {
		if !slices.Contains(obeyed, fl.Name) && !strings.HasPrefix(fl.Name, "log-") {
			names = append(names, "--"+fl.Name)
		}
	})
	return names
}

// WriteYAML writes the resulting configuration as a file that Load accepts.
func (c *Config) WriteYAML(w io.Writer) error {
	out, err := yaml.Marshal(c.wire)
	if err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	_, err = w.Write(out)
	return err
}

// Configz returns the resulting configuration for /configz. It marshals to the JSON
// of KubeProxyConfiguration v1alpha1.
func (c *Config) Configz() any { return c.wire }
