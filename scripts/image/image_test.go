package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// building is a request for this machine's processor: the program is compiled already,
// so that a build is little more than linking.
func building(t *testing.T) request {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return request{root: root, out: filepath.Join(t.TempDir(), "image"), version: "v1.2.3-test", revision: "abc",
		created: time.Unix(1_700_000_000, 0).UTC(), archs: []string{runtime.GOARCH}}
}

// TestSameBytes builds all of it twice, into other folders.
func TestSameBytes(t *testing.T) {
	var all []map[string]string
	for range 2 {
		r := building(t)
		if err := r.build(); err != nil {
			t.Fatal(err)
		}
		all = append(all, digests(t, r.out))
	}
	if !maps.Equal(all[0], all[1]) {
		t.Errorf("two builds differ:\n%v\n%v", all[0], all[1])
	}
	if len(all[0]) < 8 {
		t.Errorf("only %d files: %v", len(all[0]), all[0])
	}
}

// TestResult runs what a user has: the binary, checksums, the list of contents.
func TestResult(t *testing.T) {
	r := building(t)
	if err := r.build(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = r.out
	if out, err := cmd.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") != 3 {
		t.Errorf("checksums: %v\n%s", err, out)
	}
	name := filepath.Join(r.out, "fairlead-linux-"+runtime.GOARCH)
	if out, err := exec.Command(name, "--version").CombinedOutput(); err != nil || string(out) != "fairlead v1.2.3-test\n" {
		t.Errorf("--version: %v %q", err, out)
	}
	var d spdxDocument
	data, err := os.ReadFile(name + ".spdx.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	checkSBOM(t, d)
}

func checkSBOM(t *testing.T, d spdxDocument) {
	t.Helper()
	ids, names := map[string]bool{d.ID: true}, map[string]string{}
	for _, p := range d.Packages {
		if ids[p.ID] || p.Version == "" {
			t.Errorf("package %+v: its id is taken or its version is empty", p)
		}
		ids[p.ID] = true
		names[p.Name] = p.Version
	}
	for _, r := range d.Relationships {
		if !ids[r.From] || !ids[r.To] {
			t.Errorf("relationship %+v names what is not there", r)
		}
	}
	for _, name := range []string{"github.com/fairlead/fairlead", "stdlib", "github.com/mdlayher/netlink", "k8s.io/client-go"} {
		if names[name] == "" {
			t.Errorf("%s is missing", name)
		}
	}
	if d.Version != "SPDX-2.3" || !strings.HasPrefix(names["stdlib"], "go1.") || len(d.Relationships) != len(d.Packages) {
		t.Errorf("%s, %s, %d relationships of %d packages", d.Version, names["stdlib"], len(d.Relationships), len(d.Packages))
	}
}

// TestLayout reads the layout as other tools do.
func TestLayout(t *testing.T) {
	r := building(t)
	if err := r.writeLayout([]binary{{arch: "amd64", data: []byte("one")}, {arch: "arm64", data: []byte("two")}}); err != nil {
		t.Fatal(err)
	}
	top, err := layout.ImageIndexFromPath(filepath.Join(r.out, "oci"))
	if err != nil {
		t.Fatal(err)
	}
	tagged, err := top.IndexManifest()
	if err != nil || len(tagged.Manifests) != 1 || tagged.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != r.version {
		t.Fatalf("the layout has %+v, %v", tagged, err)
	}
	index, err := top.ImageIndex(tagged.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ arch, program string }{{"amd64", "one"}, {"arm64", "two"}} {
		if p := m.Manifests[i].Platform; p.OS != "linux" || p.Architecture != want.arch {
			t.Errorf("manifest %d is for %v", i, p)
		}
		img, err := index.Image(m.Manifests[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, img, want.arch, want.program)
	}
}

func checkImage(t *testing.T, img v1.Image, arch, program string) {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c.Architecture != arch || c.OS != "linux" || !slices.Equal(c.Config.Entrypoint, []string{"/fairlead"}) ||
		!slices.Contains(c.Config.Env, "PATH=/usr/local/bin:/") || c.Config.Labels["org.opencontainers.image.version"] != "v1.2.3-test" ||
		c.Config.Labels["org.opencontainers.image.revision"] != "abc" || c.Config.User != "" {
		t.Errorf("config %+v", c)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	files, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	var got []string
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %o %d %s%s", h.Name, h.Mode, h.ModTime.Unix(), h.Linkname, text)))
	}
	want := []string{"fairlead 755 1700000000 " + program, "usr/ 755 1700000000", "usr/local/ 755 1700000000", "usr/local/bin/ 755 1700000000",
		"usr/local/bin/kube-proxy 777 1700000000 /fairlead"}
	if !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
}

// TestKubeProxysName: the program does what kubeadm's, kops' and EKS' manifests ask of
// kube-proxy, under the name that they call it by.
func TestKubeProxysName(t *testing.T) {
	r := building(t)
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := r.compile(runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(r.out, "kube-proxy")
	if err := os.Symlink(b.name, name); err != nil {
		t.Fatal(err)
	}
	written := filepath.Join(r.out, "config.conf")
	// --write-config-to reads and checks everything, and ends before it touches the kernel.
	cmd := exec.Command(name, "--config="+filepath.Join(r.root, "internal/config/testdata/kubeadm.yaml"), "--hostname-override=node-a",
		"--v=2", "--write-config-to="+written)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	text, err := os.ReadFile(written)
	if err != nil || !strings.Contains(string(text), "kubeconfig: /var/lib/kube-proxy/kubeconfig.conf") {
		t.Errorf("it did not read kubeadm's file: %v\n%s", err, text)
	}
}

func TestSourceDate(t *testing.T) {
	if got, err := sourceDate(""); err != nil || got.Unix() != 0 {
		t.Errorf("none: %v, %v", got, err)
	}
	if got, err := sourceDate("1700000000"); err != nil || got.Year() != 2023 {
		t.Errorf("a date: %v, %v", got, err)
	}
	if _, err := sourceDate("yesterday"); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("no number: %v", err)
	}
}

// digests gives each file of a folder, by name.
func digests(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		sum := sha256.Sum256(data)
		name, _ := filepath.Rel(dir, path)
		all[name] = hex.EncodeToString(sum[:])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
