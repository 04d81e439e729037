package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const deployDir = "../../deploy"

// operators are kinds that are not Kubernetes' own.
var operators = []string{"PodMonitor", "PrometheusRule"}

// rendered is the output of an overlay.
type rendered struct {
	daemonSet  *appsv1.DaemonSet
	configMaps map[string]*corev1.ConfigMap
	role       *rbacv1.ClusterRole
	binding    *rbacv1.ClusterRoleBinding
	kinds      []string
}

func (r *rendered) pod() *corev1.PodSpec { return &r.daemonSet.Spec.Template.Spec }

// build runs kustomize over a folder and decodes each object as strictly as an API server can.
func build(t *testing.T, fs filesys.FileSystem, dir string) []byte {
	t.Helper()
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fs, dir)
	if err != nil {
		t.Fatalf("kustomize build %s: %v", dir, err)
	}
	text, err := m.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func read(t *testing.T, text []byte) *rendered {
	t.Helper()
	r := &rendered{configMaps: map[string]*corev1.ConfigMap{}}
	decode := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var meta runtime.TypeMeta
		if err := yaml.Unmarshal(doc, &meta); err != nil {
			t.Fatal(err)
		}
		r.kinds = append(r.kinds, meta.Kind)
		if slices.Contains(operators, meta.Kind) {
			continue
		}
		obj, _, err := decode.Decode(append(slices.Clip(doc), '\n'), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		switch o := obj.(type) {
		case *appsv1.DaemonSet:
			r.daemonSet = o
		case *corev1.ConfigMap:
			r.configMaps[o.Name] = o
		case *rbacv1.ClusterRole:
			r.role = o
		case *rbacv1.ClusterRoleBinding:
			r.binding = o
		}
	}
	if r.daemonSet == nil {
		t.Fatalf("no DaemonSet among %v", r.kinds)
	}
	return r
}

// TestManifestIsTheBase: the file for users without kustomize is generated from the base and means the same.
func TestManifestIsTheBase(t *testing.T) {
	file, err := os.ReadFile(filepath.Join(deployDir, "fairlead.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	made, err := exec.Command("bash", "../../scripts/manifest.sh").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(file, made) {
		t.Error("deploy/fairlead.yaml is not that of the base: bash scripts/manifest.sh > deploy/fairlead.yaml")
	}
	base, plain := read(t, build(t, filesys.MakeFsOnDisk(), deployDir+"/kustomize/base")), read(t, file)
	slices.Sort(base.kinds)
	slices.Sort(plain.kinds)
	if !slices.Equal(base.kinds, plain.kinds) {
		t.Errorf("kustomize makes %v of the base, the file has %v", base.kinds, plain.kinds)
	}
	if a, b := asYAML(t, base.daemonSet), asYAML(t, plain.daemonSet); a != b {
		t.Errorf("kustomize makes another DaemonSet:\n%s\nthan the file has:\n%s", a, b)
	}
	if a, b := asYAML(t, base.configMaps), asYAML(t, plain.configMaps); a != b {
		t.Errorf("kustomize makes other ConfigMaps:\n%s\nthan the file has:\n%s", a, b)
	}
}

// TestOverlays: each overlay is complete, has no placeholder left, and its config is accepted by the agent.
func TestOverlays(t *testing.T) {
	for _, c := range []struct {
		name   string
		server string            // of the API, from the environment; empty: from a kubeconfig
		theirs map[string]string // ConfigMaps of the cluster that the pod mounts: name to the file that the agent reads
	}{
		{name: "kubeadm", theirs: map[string]string{"kube-proxy": "/var/lib/kube-proxy/config.conf"}},
		{name: "k3s", server: "127.0.0.1"},
		{name: "eks", theirs: map[string]string{"kube-proxy": "/var/lib/kube-proxy/kubeconfig"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := build(t, filesys.MakeFsOnDisk(), deployDir+"/kustomize/"+c.name)
			if bytes.Contains(text, []byte("API-SERVER-ADDRESS")) {
				t.Error("the placeholder is left")
			}
			r := read(t, text)
			checkVolumes(t, r, c.theirs)
			server := ""
			for _, v := range r.pod().Containers[0].Env {
				if v.Name == "KUBERNETES_SERVICE_HOST" {
					server = v.Value
				}
			}
			if server != c.server {
				t.Errorf("the API server is %q, want %q", server, c.server)
			}
			said := string(text)
			for _, m := range r.configMaps {
				accepted(t, m.Data["config.yaml"])
				said += m.Data["config.yaml"]
			}
			for _, file := range c.theirs {
				if !strings.Contains(said, file) {
					t.Errorf("nothing names %s", file)
				}
			}
		})
	}
}

// checkVolumes checks that every mount has its volume, and that every ConfigMap is in the overlay or is one
// of the cluster's.
func checkVolumes(t *testing.T, r *rendered, theirs map[string]string) {
	t.Helper()
	volumes := map[string]corev1.Volume{}
	for _, v := range r.pod().Volumes {
		volumes[v.Name] = v
		if v.ConfigMap != nil && r.configMaps[v.ConfigMap.Name] == nil && theirs[v.ConfigMap.Name] == "" {
			t.Errorf("volume %s wants the ConfigMap %s, which nobody makes", v.Name, v.ConfigMap.Name)
		}
	}
	for _, c := range slices.Concat(r.pod().InitContainers, r.pod().Containers) {
		config := ""
		for _, a := range c.Args {
			if name, ok := strings.CutPrefix(a, "--config="); ok {
				config = name
			}
		}
		mounted := false
		for _, m := range c.VolumeMounts {
			if _, ok := volumes[m.Name]; !ok {
				t.Errorf("container %s mounts %s, which is no volume", c.Name, m.Name)
			}
			mounted = mounted || strings.HasPrefix(config, m.MountPath+"/")
		}
		if !mounted {
			t.Errorf("container %s has the config %q and mounts %v", c.Name, config, c.VolumeMounts)
		}
	}
}

// accepted checks that the agent accepts the config file. The agent ends before it writes to the kernel.
func accepted(t *testing.T, config string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(agentBinary(t), "--config="+file, "--hostname-override=node", "--write-config-to="+file+".out").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("the agent about its config: %v\n%s\n%s", err, out, config)
	}
}

// TestComponents tests the components that can be added to an overlay.
func TestComponents(t *testing.T) {
	fs := filesys.MakeFsInMemory()
	copyInto(t, fs, deployDir+"/kustomize")
	overlay := "resources: [../kubeadm]\ncomponents: [../iptables, ../monitoring]\n"
	if err := fs.WriteFile("/all/kustomization.yaml", []byte(overlay)); err != nil {
		t.Fatal(err)
	}
	r := read(t, build(t, fs, "/all"))
	checkVolumes(t, r, map[string]string{"kube-proxy": "theirs"})
	c := r.pod().Containers[0]
	lock := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/run/xtables.lock" })
	if !lock || !slices.Equal(c.SecurityContext.Capabilities.Add, []corev1.Capability{"NET_ADMIN", "NET_RAW"}) {
		t.Errorf("lock %t, rights %v", lock, c.SecurityContext.Capabilities)
	}
	if len(c.Ports) != 1 || c.Ports[0].Name != "metrics" || c.Ports[0].ContainerPort != 10249 {
		t.Errorf("ports %v", c.Ports)
	}
	for _, kind := range operators {
		if !slices.Contains(r.kinds, kind) {
			t.Errorf("no %s among %v", kind, r.kinds)
		}
	}
}

// copyInto copies a folder of folders of files to the root of fs.
func copyInto(t *testing.T, fs filesys.FileSystem, dir string) {
	t.Helper()
	files, err := filepath.Glob(dir + "/*/*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d files in %s, %v", len(files), dir, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := fs.WriteFile(strings.TrimPrefix(f, dir), text); err != nil {
			t.Fatal(err)
		}
	}
}

func fileText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// asYAML returns the form in which two objects are compared: a field that is empty in one and absent in the
// other means the same.
func asYAML(t *testing.T, v any) string {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
