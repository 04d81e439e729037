package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
)

func testParams() Params {
	return Params{
		Modes:    []string{"nftables", "iptables", "ipvs"},
		Hostname: func() (string, error) { return "Node-A", nil },
	}
}

func load(t *testing.T, p Params, args ...string) (*Config, error) {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f := Register(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatalf("parse %q: %v", args, err)
	}
	return f.Load(p)
}

func mustLoad(t *testing.T, args ...string) *Config {
	t.Helper()
	c, err := load(t, testParams(), args...)
	if err != nil {
		t.Fatalf("load %q: %v", args, err)
	}
	return c
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const header = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

func defaults() *Config {
	return &Config{
		Mode: "nftables", ModeBy: "default", NodeName: "node-a",
		Client:      Client{ContentType: "application/vnd.kubernetes.protobuf", QPS: 5, Burst: 10},
		BindAddress: netip.MustParseAddr("0.0.0.0"),
		Healthz:     netip.MustParseAddrPort("0.0.0.0:10256"),
		Metrics:     netip.MustParseAddrPort("127.0.0.1:10249"),
		SyncPeriod:  30 * time.Second, ConfigSyncPeriod: 15 * time.Minute,
		MasqueradeBit: 14, LocalhostNodePorts: true,
		NodePorts:   NodePorts{Primary: true},
		DetectLocal: DetectLocal{Mode: ClusterCIDR},
		Conntrack:   Conntrack{MaxPerCore: 32768, Min: 131072, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour},
		IPVS:        IPVS{DrainGrace: 15 * time.Minute},
		Userspace:   Userspace{DrainGrace: 15 * time.Minute, EndpointGrace: 15 * time.Minute},
		Offload:     Offload{SelfTest: SelfTestAuto},
		OOMScoreAdj: -999,
		DNS:         DNS{Domain: "cluster.local", ClusterService: "kube-system/kube-dns", Park: time.Second, PodRecords: true, ClientRate: 20000, MaxStale: 5 * time.Minute},
		Logging:     Logging{Format: "text"},
	}
}

func diff(want, got *Config) string {
	return cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{}), cmpopts.IgnoreFields(Config{}, "FeatureGates", "FileDigest"),
		cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }))
}

func prefixes(ss ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range ss {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want func(*Config)
	}{
		"none":                  {nil, func(*Config) {}},
		"underscores":           {[]string{"--proxy_mode=nftables"}, func(c *Config) { c.ModeBy = "" }},
		"hostname":              {[]string{"--hostname-override= Other.Example "}, func(c *Config) { c.NodeName = "other.example" }},
		"manifests":             {[]string{"--manifests=/m"}, func(c *Config) { c.Manifests = "/m" }},
		"healthz off":           {[]string{"--healthz-bind-address="}, func(c *Config) { c.Healthz = netip.AddrPort{} }},
		"metrics off":           {[]string{"--metrics-bind-address="}, func(c *Config) { c.Metrics = netip.AddrPort{} }},
		"metrics off by port":   {[]string{"--metrics-port=0"}, func(c *Config) { c.Metrics = netip.AddrPort{} }},
		"healthz port":          {[]string{"--healthz-port=1"}, func(c *Config) { c.Healthz = netip.MustParseAddrPort("0.0.0.0:1") }},
		"port added":            {[]string{"--metrics-bind-address=10.1.1.1"}, func(c *Config) { c.Metrics = netip.MustParseAddrPort("10.1.1.1:10249") }},
		"port added, IPv6":      {[]string{"--healthz-bind-address=fd00::1"}, func(c *Config) { c.Healthz = netip.MustParseAddrPort("[fd00::1]:10256") }},
		"port kept":             {[]string{"--healthz-bind-address=[::]:99"}, func(c *Config) { c.Healthz = netip.MustParseAddrPort("[::]:99") }},
		"masquerade all":        {[]string{"--masquerade-all"}, func(c *Config) { c.MasqueradeAll = true }},
		"periods":               {[]string{"--iptables-sync-period=9s", "--iptables-min-sync-period=2s"}, func(c *Config) { c.SyncPeriod, c.MinSyncPeriod = 9*time.Second, 2*time.Second }},
		"cluster CIDR":          {[]string{"--cluster-cidr=10.1.2.3/16"}, func(c *Config) { c.DetectLocal.ClusterCIDRs = prefixes("10.1.0.0/16") }},
		"cluster CIDRs":         {[]string{"--cluster-cidr=fd00::/64,010.0.0.0/8"}, func(c *Config) { c.DetectLocal.ClusterCIDRs = prefixes("fd00::/64", "10.0.0.0/8") }},
		"node ports by CIDR":    {[]string{"--nodeport-addresses=10.0.0.0/8,fd00::/8"}, func(c *Config) { c.NodePorts = NodePorts{CIDRs: prefixes("10.0.0.0/8", "fd00::/8")} }},
		"node ports, twice":     {[]string{"--nodeport-addresses=10.0.0.0/8", "--nodeport-addresses=fd00::/8"}, func(c *Config) { c.NodePorts = NodePorts{CIDRs: prefixes("10.0.0.0/8", "fd00::/8")} }},
		"node ports of iptable": {[]string{"--proxy-mode=iptables"}, func(c *Config) { c.Mode, c.ModeBy, c.NodePorts = "iptables", "", NodePorts{} }},
		"bit of iptables":       {[]string{"--proxy-mode=iptables", "--iptables-masquerade-bit=3"}, func(c *Config) { c.Mode, c.ModeBy, c.NodePorts, c.MasqueradeBit = "iptables", "", NodePorts{}, 3 }},
		"conntrack": {[]string{"--conntrack-max-per-core=0", "--conntrack-udp-timeout=5s"}, func(c *Config) {
			c.Conntrack.MaxPerCore, c.Conntrack.UDP = 0, 5*time.Second
		}},
		"bridge": {[]string{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=cni0", "--cluster-cidr=nonsense"}, func(c *Config) {
			c.DetectLocal = DetectLocal{Mode: BridgeInterface, Bridge: "cni0"}
		}},
		"log": {[]string{"-v=4", "--logging-format=json"}, func(c *Config) { c.Logging = Logging{Format: "json", Verbosity: 4} }},
		"IPv6": {[]string{"--bind-address=fd00::5"}, func(c *Config) {
			c.BindAddress = netip.MustParseAddr("fd00::5")
			c.Healthz, c.Metrics = netip.MustParseAddrPort("[::]:10256"), netip.MustParseAddrPort("[::1]:10249")
		}},
		"ipvs": {[]string{"--proxy-mode=ipvs", "--ipvs-sync-period=7s", "--ipvs-exclude-cidrs=10.9.0.0/16", "--masquerade-all"}, func(c *Config) {
			c.Mode, c.ModeBy, c.NodePorts, c.SyncPeriod, c.MasqueradeAll = "ipvs", "", NodePorts{}, 7*time.Second, true
			c.IPVS.ExcludeCIDRs = prefixes("10.9.0.0/16")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			want, got := defaults(), mustLoad(t, tc.args...)
			tc.want(want)
			got.Warnings = slices.DeleteFunc(got.Warnings, func(w string) bool { return strings.HasPrefix(w, "mode is not set") })
			if d := diff(want, got); d != "" {
				t.Errorf("%q: -want +got:\n%s", tc.args, d)
			}
		})
	}
}

func TestEveryFlagOfKubeProxyIsAccepted(t *testing.T) {
	names, err := os.ReadFile("testdata/kube-proxy-1.36.3-flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	Register(fs)
	n := 0
	for name := range strings.FieldsSeq(string(names)) {
		n++
		if fs.Lookup(name) == nil {
			t.Errorf("--%s is missing", name)
		}
	}
	if n != 58 {
		t.Fatalf("only %d names in the list", n)
	}
	var own []string
	fs.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(strings.Fields(string(names)), f.Name) {
			own = append(own, f.Name)
		}
	})
	want := slices.Sorted(slices.Values(ownNames()))
	if !slices.Equal(own, want) {
		t.Errorf("flags that kube-proxy does not have: %q", own)
	}
}

// Each flag is in one group of the help.
func TestGroupsHoldEveryFlag(t *testing.T) {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	Register(fs)
	in := map[string]string{}
	for _, g := range Groups(fs) {
		g.Flags.VisitAll(func(f *pflag.Flag) {
			if in[f.Name] != "" {
				t.Errorf("--%s is in %q and %q", f.Name, in[f.Name], g.Title)
			}
			in[f.Name] = g.Title
		})
	}
	fs.VisitAll(func(f *pflag.Flag) {
		if in[f.Name] == "" {
			t.Errorf("--%s is in no group", f.Name)
		}
	})
	for flag, want := range map[string]string{"manifests": "Flags of Fairlead", "proxy-mode": "Flags of kube-proxy", "vmodule": "Accepted without effect"} {
		if in[flag] != want {
			t.Errorf("--%s is in %q, want %q", flag, in[flag], want)
		}
	}
}

func TestFile(t *testing.T) {
	c := mustLoad(t, "--config=testdata/kubeadm.yaml", "--masquerade-all=false", "-v=3", "--hostname-override=n1", "--manifests=/m", "--iptables-sync-period=99s")
	want := defaults()
	want.File, want.NodeName, want.Manifests, want.Logging.Verbosity = "testdata/kubeadm.yaml", "n1", "/m", 3
	want.BindAddress = netip.MustParseAddr("::")
	want.Healthz, want.Metrics = netip.MustParseAddrPort("[::]:10256"), netip.MustParseAddrPort("[::1]:10249")
	want.Client.Kubeconfig = "/var/lib/kube-proxy/kubeconfig.conf"
	want.DetectLocal.ClusterCIDRs = prefixes("10.244.0.0/16", "fd00:10:244::/56")
	want.MasqueradeAll, want.MasqueradeBit, want.SyncPeriod = true, 20, 10*time.Second
	want.Warnings = []string{"ignored because --config is given: --iptables-sync-period --masquerade-all",
		"mode is not set: using nftables, where kube-proxy 1.36 uses iptables on Linux. NodePorts answer on the node's primary addresses only " +
			"(nodePortAddresses: primary), and not on 127.0.0.1. To confirm this set mode: nftables (--proxy-mode=nftables); for kube-proxy's default, iptables",
		"accepted without effect in nftables mode here: clientConnection.kubeconfig"}
	if d := diff(want, c); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestFileWrittenByKubeProxy(t *testing.T) {
	c := mustLoad(t, "--config=testdata/kube-proxy-1.36.3-defaults.yaml")
	want := defaults()
	want.File, want.Mode, want.ModeBy, want.NodePorts, want.MinSyncPeriod = c.File, "iptables", "", NodePorts{}, time.Second
	if d := diff(want, c); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestFileIsReadLenientlyWithWarnings(t *testing.T) {
	path := writeFile(t, header+"clusterCIDR: 10.0.0.0/8\nclusterCIDR: 10.1.0.0/16\niptable: {}\nConntrack: {min: 1}\n")
	c := mustLoad(t, "--config="+path)
	if d := cmp.Diff(prefixes("10.1.0.0/16"), c.DetectLocal.ClusterCIDRs, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
		t.Error(d)
	}
	if c.Conntrack.Min != 131072 {
		t.Error("a key in the wrong case counted")
	}
	all := strings.Join(c.Warnings, "\n")
	for _, part := range []string{"clusterCIDR", `"iptable"`, `"Conntrack"`} {
		if !strings.Contains(all, part) {
			t.Errorf("no warning about %s in:\n%s", part, all)
		}
	}
}

func TestBadFiles(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"not YAML":     {header + "\tx: [", "config.yaml"},
		"wrong kind":   {"apiVersion: v1\nkind: Pod\n", `must be apiVersion kubeproxy.config.k8s.io/v1alpha1`},
		"empty":        {"", "must be apiVersion"},
		"wrong type":   {header + "oomScoreAdj: high\n", "oomScoreAdj"},
		"bad duration": {header + "configSyncPeriod: 15\n", "not a duration"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, testParams(), "--config="+writeFile(t, tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want it to say %q", err, tc.want)
			}
		})
	}
	if _, err := load(t, testParams(), "--config=/nonexistent/x.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestAllFaultsAreReportedAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want []string // parts of lines, one line each
	}{
		"flags": {
			[]string{
				"--proxy-mode=userspace", "--bind-address=1.2.3", "--healthz-bind-address=host:1", "--metrics-bind-address=10.0.0.1:0",
				"--iptables-sync-period=-1s", "--oom-score-adj=2000", "--kube-api-burst=-1", "--cluster-cidr=10.0.0.0/8,10.1.0.0/16",
				"--nodeport-addresses=primary,10.0.0.0/8", "--conntrack-min=-1", "--conntrack-tcp-timeout-established=-1s",
				"--feature-gates=NFTablesProxyMode=false,AllAlpha=maybe", "--logging-format=xml", "--hostname-override= ",
				"--show-hidden-metrics-for-version=1.2", "--config-sync-period=-1s",
			},
			[]string{
				`--proxy-mode: "userspace" is not built yet`, `--bind-address: "1.2.3"`, `--healthz-bind-address: "host:1"`,
				`--metrics-bind-address: "10.0.0.1:0"`, `--iptables-sync-period: "-1s"`, `--oom-score-adj: "2000"`, `--kube-api-burst: "-1"`,
				`--cluster-cidr: "10.0.0.0/8,10.1.0.0/16"`, `--nodeport-addresses: "primary,10.0.0.0/8"`, `--conntrack-min: "-1"`,
				`--conntrack-tcp-timeout-established: "-1s"`,
				`--feature-gates: "NFTablesProxyMode" is locked to true`, `--feature-gates: "AllAlpha=maybe"`, `--logging-format: "xml"`,
				`--hostname-override: " " must not be blank`, `--show-hidden-metrics-for-version: "1.2"`, `--config-sync-period: "-1s"`,
			},
		},
		"service metrics":             {[]string{"--service-metrics=10001"}, []string{`--service-metrics: "10001" must be within 0 and 10000`}},
		"fewer than none":             {[]string{"--service-metrics=-1"}, []string{`--service-metrics: "-1" must be within 0 and 10000`}},
		"start-up taint":              {[]string{"--startup-taint=a/b=c:NoSchedule"}, []string{`--startup-taint: "a/b=c:NoSchedule" must be the key of a taint`}},
		"start-up taint and a folder": {[]string{"--startup-taint=a/b", "--manifests=x"}, []string{`--startup-taint: "a/b" cannot be given together with --manifests`}},
		"unknown mode":                {[]string{"--proxy-mode=ebpf"}, []string{`--proxy-mode: "ebpf" must be one of nftables, iptables, ipvs`}},
		"min above sync": {
			[]string{"--iptables-sync-period=1s", "--iptables-min-sync-period=2s"},
			[]string{`--iptables-min-sync-period: "2s" must not be greater than nftables.syncPeriod, 1s`},
		},
		"two sources": {
			[]string{"--manifests=/m", "--kubeconfig=/k", "--master=https://1.2.3.4"},
			[]string{`--manifests: "/m" cannot be given together with --kubeconfig`, `--manifests: "/m" cannot be given together with --master`},
		},
		"master beside a file": {
			[]string{"--config=testdata/kubeadm.yaml", "--manifests=/m", "--master=https://1.2.3.4"},
			[]string{`--manifests: "/m" cannot be given together with --master`},
		},
		"period 0":  {[]string{"--iptables-sync-period=0"}, []string{`--iptables-sync-period: "0" must be greater than 0`}},
		"no bridge": {[]string{"--detect-local-mode=BridgeInterface"}, []string{`--pod-bridge-interface`}},
		"no prefix": {[]string{"--detect-local-mode=InterfaceNamePrefix"}, []string{`--pod-interface-name-prefix`}},
		"no mode":   {[]string{"--detect-local-mode=Guess"}, []string{`--detect-local-mode: "Guess"`}},
		"bit":       {[]string{"--proxy-mode=iptables", "--iptables-masquerade-bit=32"}, []string{`--iptables-masquerade-bit: "32"`}},
		"ipvs":      {[]string{"--proxy-mode=ipvs", "--ipvs-udp-timeout=-2s"}, []string{`--ipvs-udp-timeout: "-2s"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, testParams(), tc.args...)
			if err == nil {
				t.Fatal("no error")
			}
			lines := strings.Split(err.Error(), "\n")
			for _, part := range tc.want {
				if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, part) }) {
					t.Errorf("no line says %s", part)
				}
			}
			if len(lines) != len(tc.want) {
				t.Errorf("%d lines, want %d:\n%s", len(lines), len(tc.want), err)
			}
			var fe *FieldError
			if !errors.As(err, &fe) {
				t.Error("no FieldError inside")
			}
		})
	}
}

func TestFaultsInFileNameTheField(t *testing.T) {
	_, err := load(t, testParams(), "--config="+writeFile(t, header+"nftables: {masqueradeBit: 40}\n"))
	if err == nil || err.Error() != `configuration: nftables.masqueradeBit: "40" must be within 0 and 31` {
		t.Errorf("got %v", err)
	}
}

func TestHostNameUnknown(t *testing.T) {
	p := testParams()
	p.Hostname = func() (string, error) { return "", errors.New("no name") }
	if _, err := load(t, p); err == nil || !strings.Contains(err.Error(), "no name") {
		t.Errorf("got %v", err)
	}
	if _, err := load(t, p, "--hostname-override=n"); err != nil {
		t.Errorf("overridden: %v", err)
	}
}

// Whatever is accepted and does nothing is named, in one line; and nothing else is.
func TestSettingsWithoutEffectAreNamedOnce(t *testing.T) {
	file := func(text string) []string { return []string{"--config=" + writeFile(t, header+text)} }
	const nft, ipt = "accepted without effect in nftables mode here: ", "accepted without effect in iptables mode here: "
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"flags": {[]string{"--proxy-mode=nftables", "--vmodule=a=1", "--ipvs-scheduler=lc", "--iptables-masquerade-bit=3", "--machine_id_file=/x", "--log-flush-frequency=1s",
			"--config-sync-period=1h", "--feature-gates=AllAlpha=false,AllowServiceExternalIPs=true"},
			nft + "--config-sync-period --feature-gates=AllAlpha --iptables-masquerade-bit --ipvs-scheduler --log-flush-frequency --machine-id-file --vmodule"},
		"a flag that acts in every mode": {[]string{"--proxy-mode=nftables", "--iptables-localhost-nodeports=false"}, ""},
		"file": {file("mode: nftables\nclientConnection: {acceptContentTypes: x}\nconfigSyncPeriod: 1h\nlogging: {flushFrequency: 1s, vmodule: [{filePattern: a, verbosity: 1}], " +
			"options: {json: {infoBufferSize: 1Mi}}}\nshowHiddenMetricsForVersion: '1.35'\nfeatureGates: {AllBeta: true}\nportRange: 1-2\nwinkernel: {enableDSR: true}\nwindowsRunAsService: true\n"),
			nft + "clientConnection.acceptContentTypes configSyncPeriod featureGates.AllBeta logging.flushFrequency logging.options logging.vmodule portRange " +
				"showHiddenMetricsForVersion windowsRunAsService winkernel"},
		"defaults, written out": {file("mode: nftables\nconfigSyncPeriod: 15m\nlogging: {flushFrequency: 5000000000, options: {text: {infoBufferSize: \"0\", splitStream: false}}}\n" +
			"iptables: {masqueradeBit: 14, syncPeriod: 30s, minSyncPeriod: 1s, localhostNodePorts: false}\nipvs: {excludeCIDRs: []}\n"), ""},
		"sections of other modes": {file("mode: nftables\niptables: {masqueradeAll: true, masqueradeBit: 3}\nipvs: {scheduler: lc, strictARP: true}\nnftables: {masqueradeAll: true}\n"),
			nft + "iptables.masqueradeAll iptables.masqueradeBit ipvs.scheduler ipvs.strictARP"},
		"section of nftables": {file("mode: iptables\nnftables: {masqueradeAll: true, minSyncPeriod: 5s}\niptables: {masqueradeAll: true}\n"),
			ipt + "nftables.masqueradeAll nftables.minSyncPeriod"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(mustLoad(t, tc.args...).Warnings, "\n"); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// Without a mode, a configuration made for kube-proxy runs in another mode than
// there, and a warning reports that.
func TestModeThatIsNotSet(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		says string // "" = nothing
		by   string
	}{
		"kube-proxy's flags":     {[]string{"--cluster-cidr=10.0.0.0/8"}, "NodePorts answer on the node's primary addresses only", "default"},
		"file":                   {[]string{"--config=" + writeFile(t, header)}, "and not on 127.0.0.1", "default"},
		"file, addresses":        {[]string{"--config=" + writeFile(t, header+"nodePortAddresses: [10.0.0.0/8]\n")}, "kube-proxy 1.36 uses iptables on Linux. To confirm", "default"},
		"file, primary is meant": {[]string{"--config=" + writeFile(t, header+"nodePortAddresses: [primary]\n")}, "kube-proxy 1.36 uses iptables on Linux. To confirm", "default"},
		"file with a mode":       {[]string{"--config=" + writeFile(t, header+"mode: nftables\n")}, "", ""},
		"flag without a mode":    {[]string{"--proxy-mode=", "--cluster-cidr=10.0.0.0/8"}, "NodePorts answer on the node's primary addresses only", "default"},
		"flag":                   {[]string{"--proxy-mode=nftables", "--cluster-cidr=10.0.0.0/8"}, "", ""},
		"nothing of kube-proxy":  {[]string{"--manifests=/m", "-v=2", "--reset-gone-endpoints"}, "", "default"},
	} {
		t.Run(name, func(t *testing.T) {
			c := mustLoad(t, tc.args...)
			if c.ModeBy != tc.by {
				t.Errorf("the mode is by %q, want %q", c.ModeBy, tc.by)
			}
			got := strings.Join(c.Warnings, "\n")
			if !strings.Contains(got, tc.says) || (tc.says == "") != (got == "") || strings.Count(got, "mode is not set") > 1 {
				t.Errorf("got %q, want it to say %q", got, tc.says)
			}
		})
	}
}

// A gate of a later release must not end the process.
func TestUnknownGateWarns(t *testing.T) {
	for _, args := range [][]string{
		{"--proxy-mode=nftables", "--feature-gates=OfTomorrow=true"},
		{"--config=" + writeFile(t, header+"mode: nftables\nfeatureGates: {OfTomorrow: true}\n")},
	} {
		c := mustLoad(t, args...)
		if want := []string{"feature gates that Kubernetes 1.36 does not know are ignored: OfTomorrow"}; !slices.Equal(c.Warnings, want) {
			t.Errorf("%q: got %q, want %q", args, c.Warnings, want)
		}
		if _, known := c.FeatureGates["OfTomorrow"]; known {
			t.Error("an unknown gate is told as one that is known")
		}
	}
}

// /flagz, which asks for no password, shows none.
func TestGivenFlagsShowNoPassword(t *testing.T) {
	c := mustLoad(t, "--master=https://admin:s3cr/et@192.0.2.1", "--v=2")
	if got := strings.Join(c.Given(), " "); got != "master=xxxxx@192.0.2.1 v=2" {
		t.Error(got)
	}
}

func TestManifestsEmpty(t *testing.T) {
	for arg, want := range map[string]bool{"keep": false, "delete": true} {
		if c := mustLoad(t, "--manifests-empty="+arg); c.ManifestsEmptyDeletes != want {
			t.Errorf("%s: %t", arg, c.ManifestsEmptyDeletes)
		}
	}
	if _, err := load(t, testParams(), "--manifests-empty=x"); err == nil || !strings.Contains(err.Error(), `--manifests-empty: "x" must be keep or delete`) {
		t.Errorf("got %v", err)
	}
}

func TestGates(t *testing.T) {
	c := mustLoad(t, "--feature-gates=AllAlpha=true,PodTopologyLabelsAdmission=true", "--feature-gates=LoggingAlphaOptions=false")
	if len(c.FeatureGates) < 240 {
		t.Errorf("%d gates known", len(c.FeatureGates))
	}
	for name, want := range map[string]bool{
		"NativeHistograms": true, "LoggingAlphaOptions": false, "NFTablesProxyMode": true, "AllowServiceExternalIPs": true,
	} {
		if got, ok := c.FeatureGates[name]; !ok || got != want {
			t.Errorf("%s: got %t (known: %t), want %t", name, got, ok, want)
		}
	}
}

func TestWrittenConfigurationIsReadBack(t *testing.T) {
	c := mustLoad(t, "--proxy-mode=ipvs", "--cluster-cidr=10.0.0.0/8", "--nodeport-addresses=primary", "--ipvs-min-sync-period=1s", "--feature-gates=NativeHistograms=true")
	var out bytes.Buffer
	if err := c.WriteYAML(&out); err != nil {
		t.Fatal(err)
	}
	again := mustLoad(t, "--config="+writeFile(t, out.String()))
	if !again.FeatureGates["NativeHistograms"] {
		t.Error("gate lost")
	}
	again.File, again.Warnings, c.Warnings = "", nil, nil
	if d := diff(c, again); d != "" {
		t.Errorf("-written +read:\n%s", d)
	}
}

func TestConfigz(t *testing.T) {
	js, err := json.Marshal(mustLoad(t, "--oom-score-adj=5").Configz())
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(js, &got); err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]any{"kind": Kind, "mode": "nftables", "oomScoreAdj": 5.0, "configSyncPeriod": "15m0s"} {
		if got[k] != want {
			t.Errorf("%s: %v, want %v", k, got[k], want)
		}
	}
}

func FuzzFile(f *testing.F) {
	for _, name := range []string{"testdata/kubeadm.yaml", "testdata/kube-proxy-1.36.3-defaults.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(header + "nodePortAddresses: [primary, x]\nnftables: {syncPeriod: -1s}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		w, _, err := decode(text)
		if err != nil {
			return
		}
		read := w
		w.setDefaults()
		c := &Config{}
		v := &validator{fromFile: true}
		v.fill(c, &w, testParams())
		f := &Flags{file: "f", read: read, fs: pflag.NewFlagSet("", pflag.ContinueOnError)}
		_, _ = f.withoutEffect(c, &w), f.modeTaken(c)
		if len(v.errs) == 0 && (c.SyncPeriod <= 0 || !c.Metrics.IsValid() || c.MasqueradeBit > 31) {
			t.Errorf("accepted: %+v", c)
		}
	})
}
