package main

import (
	"archive/tar"
	"cmp"
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
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// building returns a request for this machine's architecture: the program is compiled already, so that a build is little more than linking.
func building(t *testing.T) request {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return request{root: root, out: filepath.Join(t.TempDir(), "image"), version: "v1.2.3-test", revision: "abc",
		created: time.Unix(1_700_000_000, 0).UTC(), archs: []string{runtime.GOARCH}}
}

// TestSameBytes builds everything twice, into different folders.
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

// TestResult runs the files that a user gets: the binary, checksums, the list of contents.
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

// tagged returns the contents of a layout under its one tag.
func tagged(t *testing.T, dir, tag string) (v1.ImageIndex, *v1.IndexManifest) {
	t.Helper()
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	list, err := top.IndexManifest()
	if err != nil || len(list.Manifests) != 1 || list.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != tag {
		t.Fatalf("the layout has %+v, %v", list, err)
	}
	index, err := top.ImageIndex(list.Manifests[0].Digest)
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
	return index, m
}

// TestLayout reads the layout as other tools do.
func TestLayout(t *testing.T) {
	r := building(t)
	if err := r.writeLayout(plain(), []binary{{arch: "amd64", data: []byte("one")}, {arch: "arm64", data: []byte("two")}}); err != nil {
		t.Fatal(err)
	}
	index, m := tagged(t, filepath.Join(r.out, "oci"), r.version)
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

// TestKubeProxysName: the program accepts the command lines that the manifests of kubeadm, kops and EKS use for kube-proxy, under the name by which
// they call it.
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
	// With --write-config-to the agent reads and checks everything, and ends before it writes to the kernel.
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

// digests returns each file of a folder, by name.
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

// unpacked returns the file system of the one image of a layout, and the path on which it looks up programs ("PATH=...").
func unpacked(t *testing.T, dir, tag string) (root, path string) {
	t.Helper()
	index, m := tagged(t, dir, tag)
	img, err := index.Image(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	c, err := img.ConfigFile()
	if err != nil || len(c.Config.Env) != 1 {
		t.Fatalf("config %+v, %v", c, err)
	}
	root = t.TempDir()
	cmd := exec.Command("tar", "-x", "-C", root)
	cmd.Stdin = mutate.Extract(img)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("unpack: %v: %s", err, out)
	}
	return root, c.Config.Env[0]
}

// downloaded returns the folder of the packages that programs.sh downloaded, in this run or in an earlier one.
func downloaded(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(cmp.Or(os.Getenv("FAIRLEAD_CACHE"), filepath.Join("..", "..", ".cache")), "image-debs")
	if list, _ := filepath.Glob(filepath.Join(dir, runtime.GOARCH, "*.deb")); len(list) > 0 {
		return dir
	}
	if out, err := exec.Command("bash", "programs.sh", dir, runtime.GOARCH).CombinedOutput(); err != nil {
		t.Fatalf("programs.sh: %v\n%s", err, out)
	}
	return dir
}

// TestALibraryIsMissing: an image whose programs could not start is not built.
func TestALibraryIsMissing(t *testing.T) {
	list, err := filepath.Glob(filepath.Join(downloaded(t), runtime.GOARCH, "*.deb"))
	if err != nil {
		t.Fatal(err)
	}
	some := t.TempDir()
	for _, file := range list {
		if strings.HasPrefix(filepath.Base(file), "libmnl0_") {
			continue
		}
		absolute, err := filepath.Abs(file)
		if err == nil {
			err = os.Symlink(absolute, filepath.Join(some, filepath.Base(file)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := collect(some, time.Unix(0, 0)); err == nil || !strings.Contains(err.Error(), "needs libmnl.so.0, and no package has it") {
		t.Errorf("without libmnl: %v", err)
	}
	if _, err := collect(t.TempDir(), time.Unix(0, 0)); err == nil || !strings.Contains(err.Error(), "no packages in ") {
		t.Errorf("without anything: %v", err)
	}
}

// TestIPTablesImage runs the agent from the second image alone, without other files, in both iptables modes: it writes rules, and the programs of
// the image print them.
func TestIPTablesImage(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED, not run: needs root, for chroot and a network namespace")
	}
	r := building(t)
	r.programs = downloaded(t)
	if err := r.build(); err != nil {
		t.Fatal(err)
	}
	var d spdxDocument
	data, err := os.ReadFile(filepath.Join(r.out, "fairlead-iptables-linux-"+runtime.GOARCH+".spdx.json"))
	if err == nil {
		err = json.Unmarshal(data, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	checkSBOM(t, d)
	for _, name := range []string{"iptables", "nftables", "libc6"} {
		if !slices.ContainsFunc(d.Packages, func(p spdxPackage) bool { return p.Name == name }) {
			t.Errorf("the list of contents has no %s", name)
		}
	}
	root, path := unpacked(t, filepath.Join(r.out, "oci-iptables"), "v1.2.3-test-iptables")
	for _, dir := range []string{"proc", "dev", "manifests"} { // as a container has them
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "manifests", "web.yaml"), []byte(oneService), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, backend := range []string{"nft", "legacy"} {
		cmd := exec.Command("unshare", "--net", "--mount", "--pid", "--fork", "bash", "-ec", runInside, "-", root, backend, path)
		out, err := cmd.CombinedOutput()
		for _, want := range []string{"fairlead v1.2.3-test\n", "in sync", "-A KUBE-SVC-", "--to-destination 10.244.1.5:8080"} {
			if err != nil || !strings.Contains(string(out), want) {
				t.Fatalf("%s: %v, and no %q in:\n%s", backend, err, want, out)
			}
		}
	}
}

const oneService = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ports: [{name: http, port: 80, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.1.5]}]
`

// runInside starts the agent in the image, $1, with $3 for its environment, and prints the rules of backend $2 as soon as some exist. The end of
// the namespaces ends all processes.
const runInside = `
ip link set lo up
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
cd "$1"
export XTABLES_LOCKFILE=/run/xtables.lock
chroot . /usr/local/bin/kube-proxy --version
env "$3" "$(command -v chroot)" . /fairlead run --manifests /manifests --hostname-override node-a --proxy-mode iptables \
	--iptables-backend "$2" --conntrack-max-per-core 0 >"$2.log" 2>&1 &
for try in $(seq 300); do
	! grep -qs "in sync" "$2.log" || break
	sleep 0.2
done
cat "$2.log"
chroot . /usr/sbin/iptables-$2-save -t nat
chroot . /usr/sbin/nft list ruleset >nft.log
`
