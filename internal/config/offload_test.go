package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOffload: the gate decides, then the flag, then the file. Modes that cannot accelerate report that in a
// warning, and start.
func TestOffload(t *testing.T) {
	const gate = "--feature-gates=KubeProxyAcceleration=true"
	file := func(text string) string { return "--config=" + writeFile(t, header+text) }
	inFile := "featureGates: {KubeProxyAcceleration: true}\noffloadPacketThreshold: 7\n"
	const auto = SelfTestAuto
	for name, c := range map[string]struct {
		args []string
		want Offload
		warn string
	}{
		"off by default":       {nil, Offload{SelfTest: auto}, ""},
		"the gate":             {[]string{gate}, Offload{SelfTest: auto, Threshold: 20}, ""},
		"all alpha gates":      {[]string{"--feature-gates=AllAlpha=true"}, Offload{SelfTest: auto, Threshold: 20}, ""},
		"a threshold":          {[]string{gate, "--offload-packet-threshold=4"}, Offload{SelfTest: auto, Threshold: 4}, ""},
		"off":                  {[]string{gate, "--offload-packet-threshold=0"}, Offload{SelfTest: auto}, ""},
		"without the gate":     {[]string{"--offload-packet-threshold=4"}, Offload{SelfTest: auto}, "needs --feature-gates=KubeProxyAcceleration=true"},
		"in a file":            {[]string{file(inFile)}, Offload{SelfTest: auto, Threshold: 7}, ""},
		"the flag goes before": {[]string{file(inFile), "--offload-packet-threshold=9"}, Offload{SelfTest: auto, Threshold: 9}, ""},
		"iptables":             {[]string{gate, "--proxy-mode=iptables"}, Offload{SelfTest: auto, Threshold: 20}, ""},
		"ipvs": {[]string{gate, "--proxy-mode=ipvs"}, Offload{SelfTest: auto, Why: "not supported in ipvs mode: its connections would stall on the kernel's fast path"},
			"not accelerated: not supported in ipvs mode"},
		"exclusions and self-test": {[]string{gate, "--offload-exclude-file=/x", "--offload-self-test=never"},
			Offload{Threshold: 20, ExcludeFile: "/x", SelfTest: SelfTestNever}, ""},
		"devices": {[]string{gate, "--offload-interfaces=eth*,en*", "--offload-exclude-interfaces=eth9"},
			Offload{SelfTest: auto, Threshold: 20, Include: []string{"eth*", "en*"}, Exclude: []string{"eth9"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := mustLoad(t, c.args...)
			if d := cmp.Diff(c.want, got.Offload); d != "" {
				t.Error(d)
			}
			all := strings.Join(got.Warnings, "\n")
			if told := strings.Contains(all, "accelerated"); told != (c.warn != "") || !strings.Contains(all, c.warn) || strings.Contains(all, "feature gates that") {
				t.Errorf("warnings %q, want %q", all, c.warn)
			}
		})
	}
	for _, bad := range []string{"--offload-packet-threshold=-1", "--offload-packet-threshold=99999999999", "--offload-interfaces=a[", "--offload-exclude-interfaces=a[", "--offload-self-test=maybe"} {
		if _, err := load(t, testParams(), bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
