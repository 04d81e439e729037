package deploy

import (
	"bytes"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const chartDir = deployDir + "/helm/fairlead"

// plainValues are the values with which the chart renders the same objects as the base, whose image and address are
// placeholders.
const plainValues = "image: {tag: dev}\napiServer: {host: API-SERVER-ADDRESS}\n"

// helm renders the chart as "helm template" does: each text is one of values, and a later one takes precedence. It
// returns the error that a user would get.
func helm(t *testing.T, values ...string) ([]byte, error) {
	t.Helper()
	chart, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	for _, text := range values {
		some, err := chartutil.ReadValues([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		all = chartutil.MergeTables(some, all) // the first of the two takes precedence
	}
	release := chartutil.ReleaseOptions{Name: "fairlead", Namespace: "kube-system", IsInstall: true, Revision: 1}
	input, err := chartutil.ToRenderValues(chart, all, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, input)
	if err != nil {
		return nil, err
	}
	var docs [][]byte
	for name, text := range files {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(text) != "" {
			docs = append(docs, []byte(strings.TrimSpace(text)))
		}
	}
	slices.SortFunc(docs, bytes.Compare)
	return bytes.Join(docs, []byte("\n---\n")), nil
}

// chart returns a rendering that must succeed. It is decoded as strictly as an API server can.
func chart(t *testing.T, values ...string) *rendered {
	t.Helper()
	text, err := helm(t, values...)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, text)
}

// plain removes what a chart has and an overlay has not, and the names that only connect mounts to volumes.
func plain(t *testing.T, r *rendered) string {
	t.Helper()
	r.daemonSet.Labels = nil
	renamed := map[string]string{}
	for i := range r.pod().Volumes {
		v := &r.pod().Volumes[i]
		old := v.Name
		if v.Name = "host"; v.ConfigMap != nil {
			v.Name = v.ConfigMap.Name
		}
		renamed[old] = v.Name
	}
	for _, list := range [][]corev1.Container{r.pod().InitContainers, r.pod().Containers} {
		for i := range list {
			list[i].ImagePullPolicy = ""
			slices.SortFunc(list[i].Env, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
			for j := range list[i].VolumeMounts {
				m := &list[i].VolumeMounts[j]
				m.Name = renamed[m.Name]
			}
			slices.SortFunc(list[i].VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.MountPath, b.MountPath) })
		}
	}
	slices.SortFunc(r.pod().Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
	configs := map[string]any{}
	for name, m := range r.configMaps {
		var c map[string]any
		if err := yaml.Unmarshal([]byte(m.Data["config.yaml"]), &c); err != nil {
			t.Fatal(err)
		}
		configs[name] = c
	}
	slices.Sort(r.kinds)
	return asYAML(t, map[string]any{"kinds": r.kinds, "configs": configs, "daemonSet": r.daemonSet, "rules": r.role.Rules, "subjects": r.binding.Subjects})
}

// TestChartIsTheOverlays: the chart, with the values for a platform, renders the same objects as the overlay for it.
func TestChartIsTheOverlays(t *testing.T) {
	for _, c := range []struct {
		overlay, components string
		values              []string
	}{
		{overlay: "base", values: []string{plainValues}},
		{overlay: "kubeadm", values: []string{"values-kubeadm.yaml"}},
		{overlay: "k3s", values: []string{"values-k3s.yaml"}},
		{overlay: "eks", values: []string{"values-eks.yaml"}},
		{overlay: "kubeadm", components: "../iptables", values: []string{"values-kubeadm.yaml", "iptables: {enabled: true}"}},
	} {
		t.Run(c.overlay+c.components, func(t *testing.T) {
			fs := filesys.MakeFsInMemory()
			copyInto(t, fs, deployDir+"/kustomize")
			overlay := "resources: [../" + c.overlay + "]\ncomponents: [" + c.components + "]\n"
			if err := fs.WriteFile("/all/kustomization.yaml", []byte(overlay)); err != nil {
				t.Fatal(err)
			}
			for i, v := range c.values {
				if strings.HasSuffix(v, ".yaml") {
					c.values[i] = fileText(t, filepath.Join(chartDir, v))
				}
			}
			want, got := plain(t, read(t, build(t, fs, "/all"))), plain(t, chart(t, c.values...))
			a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Fatalf("at line %d the chart makes\n%s\nand the overlay\n%s", i, strings.Join(a[max(0, i-8):], "\n"), b[i])
				}
			}
			if want != got {
				t.Error("one of the two has more than the other")
			}
		})
	}
}

// TestChartMonitor: the PodMonitor selects the agent's pods and equals the one of the overlay.
func TestChartMonitor(t *testing.T) {
	text, err := helm(t, plainValues, "podMonitor: {enabled: true}\nconfig: {metricsBindAddress: '0.0.0.0:10249'}")
	if err != nil {
		t.Fatal(err)
	}
	if c := read(t, text).pod().Containers[0]; len(c.Ports) != 1 || c.Ports[0].Name != "metrics" || c.Ports[0].ContainerPort != 10249 {
		t.Errorf("ports %v", c.Ports)
	}
	type monitor struct {
		Kind string         `json:"kind"`
		Spec map[string]any `json:"spec"`
	}
	var got, want monitor
	readYAML(t, deployDir+"/kustomize/monitoring/podmonitor.yaml", &want)
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var m monitor
		if err := yaml.Unmarshal(doc, &m); err == nil && m.Kind == want.Kind {
			got = m
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the chart's monitor is %v, the overlay's %v", got, want)
	}
}

// TestChartValues tests the effect of each value.
func TestChartValues(t *testing.T) {
	r := chart(t, plainValues, `
fullnameOverride: proxy
image: {repository: example.org/fairlead, tag: v1}
rbac: {create: false}
serviceAccount: {create: false, name: theirs}
sysctls: {enabled: false}
extraArgs: [--v=2]
startupTaint: {enabled: true, key: a/b}
podLabels: {a: b}
podAnnotations: {c: d}
imagePullSecrets: [{name: secret}]
updateStrategy: {type: OnDelete, rollingUpdate: null}
resources: {limits: null}
goMemLimit: ""
priorityClassName: ""
`)
	pod, c := r.pod(), r.pod().Containers[0]
	env := slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == "GOMEMLIMIT" })
	for _, one := range []struct {
		what string
		ok   bool
	}{
		{"names", r.daemonSet.Name == "proxy" && r.configMaps["proxy"] != nil && pod.Volumes[0].ConfigMap.Name == "proxy"},
		{"image", c.Image == "example.org/fairlead:v1" && pod.ImagePullSecrets[0].Name == "secret"},
		{"no role", r.role == nil && r.binding == nil},
		{"account", pod.ServiceAccountName == "theirs" && !slices.Contains(r.kinds, "ServiceAccount")},
		{"no sysctls", len(pod.InitContainers) == 0},
		{"arguments", slices.Equal(c.Args[len(c.Args)-2:], []string{"--startup-taint=a/b", "--v=2"})},
		{"pod", r.daemonSet.Spec.Template.Labels["a"] == "b" && r.daemonSet.Spec.Template.Annotations["c"] == "d"},
		{"strategy", r.daemonSet.Spec.UpdateStrategy.Type == "OnDelete" && r.daemonSet.Spec.UpdateStrategy.RollingUpdate == nil},
		{"limits", len(c.Resources.Limits) == 0 && len(c.Resources.Requests) == 2 && !env},
		{"priority", pod.PriorityClassName == ""},
	} {
		if !one.ok {
			t.Errorf("%s: not as the values say, in\n%s", one.what, asYAML(t, r.daemonSet))
		}
	}
	for label, value := range r.daemonSet.Spec.Selector.MatchLabels {
		if r.daemonSet.Spec.Template.Labels[label] != value {
			t.Errorf("the selector wants %s=%s and the pods have %v", label, value, r.daemonSet.Spec.Template.Labels)
		}
	}
}

// TestChartFollowsTheConfig: probes and ports match the addresses on which the agent listens, and DNS has its
// capabilities.
func TestChartFollowsTheConfig(t *testing.T) {
	for _, c := range []struct {
		values, host          string
		health, metrics, caps int
	}{
		{"", "127.0.0.1", 10256, 0, 1},
		{"config: {healthzBindAddress: '10.0.0.5:10300'}", "10.0.0.5", 10300, 0, 1},
		{"config: {healthzBindAddress: '[fd00::5]:10300'}", "fd00::5", 10300, 0, 1},
		{"config: {healthzBindAddress: '[::]:10300'}", "127.0.0.1", 10300, 0, 1},
		{"podMonitor: {enabled: true}\nconfig: {metricsBindAddress: '0.0.0.0:9999'}", "127.0.0.1", 10256, 9999, 1},
		{"extraArgs: ['--dns-address=169.254.20.10:53', '--dns-intercept']", "127.0.0.1", 10256, 0, 3},
		{"iptables: {enabled: true}", "127.0.0.1", 10256, 0, 2},
	} {
		box := chart(t, plainValues, c.values).pod().Containers[0]
		for _, p := range []*corev1.Probe{box.LivenessProbe, box.ReadinessProbe} {
			if p.HTTPGet.Host != c.host || p.HTTPGet.Port.IntValue() != c.health {
				t.Errorf("%s: a probe asks %s:%s", c.values, p.HTTPGet.Host, p.HTTPGet.Port.String())
			}
		}
		metrics := 0
		for _, p := range box.Ports {
			metrics = int(p.ContainerPort)
		}
		if metrics != c.metrics || len(box.SecurityContext.Capabilities.Add) != c.caps {
			t.Errorf("%s: metrics at %d, capabilities %v", c.values, metrics, box.SecurityContext.Capabilities.Add)
		}
	}
}

// TestStartupTaint: the chart and the overlay add the agent's flag and right, and only on request.
func TestStartupTaint(t *testing.T) {
	patches := func(rules []rbacv1.PolicyRule) bool {
		return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Verbs, "patch") })
	}
	const flag = "--startup-taint=fairlead.dev/agent-not-ready"
	fs := filesys.MakeFsInMemory()
	copyInto(t, fs, deployDir+"/kustomize")
	if err := fs.WriteFile("/all/kustomization.yaml", []byte("resources: [../k3s]\ncomponents: [../startup-taint]\n")); err != nil {
		t.Fatal(err)
	}
	overlay, with := read(t, build(t, fs, "/all")), chart(t, plainValues, "startupTaint: {enabled: true}")
	for name, r := range map[string]*rendered{"overlay": overlay, "chart": with} {
		if !slices.Contains(r.pod().Containers[0].Args, flag) || !slices.Contains(r.pod().Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists}) {
			t.Errorf("%s: arguments %v, tolerations %v", name, r.pod().Containers[0].Args, r.pod().Tolerations)
		}
	}
	if !patches(with.role.Rules) || patches(chart(t, plainValues).role.Rules) {
		t.Error("the chart's role may patch without being asked, or may not when asked")
	}
	if !patches(overlay.role.Rules) || len(overlay.binding.Subjects) != 1 || overlay.binding.Subjects[0].Name != overlay.pod().ServiceAccountName {
		t.Errorf("the overlay's role %v is bound to %v", overlay.role, overlay.binding)
	}
}

// TestChartRefuses: a mistake ends the rendering with an error that names it.
func TestChartRefuses(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{"", "apiServer.host or kubeProxy.configMap"},
		{"kubeProxy: {useConfig: true}\napiServer: {host: a}", "needs kubeProxy.configMap"},
		{plainValues + "config: {mode: iptables}", "needs iptables.enabled"},
		{plainValues + "podMonitor: {enabled: true}", "metricsBindAddress"},
		{plainValues + "podMonitor: {enabled: true}\nconfig: {metricsBindAddress: '[::1]:10249'}", "metricsBindAddress"},
		{plainValues + "config: {healthzBindAddress: ''}", "healthzBindAddress"},
		{plainValues + "config: {mode: nftable}", "/config/mode"},
		{plainValues + "imagePullPolicy: Always", "imagePullPolicy"},
		{"apiServer: {host: 'https://a:6443'}", "/apiServer/host"},
		{"apiServer: {host: a, port: '6443'}", "/apiServer/port"},
		{plainValues + "extraArgs: [v=2]", "/extraArgs/0"},
		{plainValues + "nodeSelector: {a: 1}", "/nodeSelector/a"},
		{plainValues + "updateStrategy: {type: Recreate}", "/updateStrategy/type"},
		{plainValues + "resource: {}", "resource"},
	} {
		_, err := helm(t, c.values)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngives %v and not an error about %s", c.values, err, c.want)
		}
	}
}
