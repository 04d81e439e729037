package file

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// listener is a sink that records the events.
type listener struct {
	mu       sync.Mutex
	services map[string]*model.Service
	slices   map[string]*model.Slice
	node     *model.Node
	cidrs    *model.ServiceCIDRs
	gone     []string            // Services and slices that were there and were taken away
	problems map[string][]string // what stands now, by what it is about
	events   int
	listed   int
	synced   int
	changed  chan struct{}
}

func (l *listener) put(e model.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	about := e.Origin
	switch {
	case e.Service != nil:
		about = "Service " + e.Service.Key.String()
		l.gone = append(l.gone, lost(l.services, e.Service.Key.String(), e.Service.Value)...)
		store(l.services, e.Service.Key.String(), e.Service.Value)
	case e.Slice != nil:
		about = "EndpointSlice " + e.Slice.Key.String()
		l.gone = append(l.gone, lost(l.slices, e.Slice.Key.String(), e.Slice.Value)...)
		store(l.slices, e.Slice.Key.String(), e.Slice.Value)
	case e.Node != nil:
		about, l.node = "Node", e.Node.Value
	case e.CIDRs != nil:
		about, l.cidrs = "ServiceCIDR", e.CIDRs
	case e.Listed != "":
		l.listed++
	case e.Synced != "":
		l.synced++
	}
	if e.Synced == "" && e.Listed == "" {
		l.events++
		delete(l.problems, about)
		for _, p := range e.Problems {
			l.problems[about] = append(l.problems[about], p.String())
		}
	}
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// lost returns the key if it was there and is not any more.
func lost[V any](m map[string]*V, key string, v *V) []string {
	if m[key] != nil && v == nil {
		return []string{key}
	}
	return nil
}

func store[V any](m map[string]*V, key string, v *V) {
	if v == nil {
		delete(m, key)
		return
	}
	m[key] = v
}

// until waits, at most for 30 s, for what was heard to satisfy ok.
func (l *listener) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		l.mu.Lock()
		done := ok()
		state := fmt.Sprintf("services %v, slices %v, problems %q",
			slices.Sorted(maps.Keys(l.services)), slices.Sorted(maps.Keys(l.slices)), l.problems)
		l.mu.Unlock()
		if done {
			return
		}
		select {
		case <-l.changed:
		case <-deadline:
			t.Fatalf("never came: %s; now %s", what, state)
		}
	}
}

// now lets see look at what was heard so far, while nothing more is.
func (l *listener) now(see func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	see()
}

func (l *listener) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events
}

func (l *listener) allProblems() []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(l.problems)) {
		out = append(out, l.problems[k]...)
	}
	return out
}

func newListener() *listener {
	return &listener{
		services: map[string]*model.Service{}, slices: map[string]*model.Slice{},
		problems: map[string][]string{}, changed: make(chan struct{}, 1), // a bell
	}
}

// none is for scans that skip no file.
func none(string) bool { return false }

// start runs a Source on dir until the test ends, and waits for Synced.
func start(t *testing.T, dir string, edit func(*Config)) *listener {
	t.Helper()
	l := newListener()
	c := Config{Dir: dir, NodeName: "n1", Rescan: time.Hour, Log: slog.New(slog.DiscardHandler)}
	if edit != nil {
		edit(&c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- New(c).Run(ctx, l.put) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	l.until(t, "Synced, Listed or why not", func() bool { return l.synced+l.listed+len(l.problems) > 0 })
	return l
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// swap replaces a file as careful editors do: by renaming.
func swap(t *testing.T, dir, name, text string) {
	t.Helper()
	write(t, dir, ".tmp-"+name, text)
	if err := os.Rename(filepath.Join(dir, ".tmp-"+name), filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func service(name, ip string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec:\n  clusterIP: %s\n  ports: [{port: 80}]\n", name, ip)
}

func slice(name, service string, endpoints ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: %s\n"+
		"  labels: {kubernetes.io/service-name: %s}\naddressType: IPv4\nports: [{port: 8080}]\nendpoints:\n", name, service)
	for _, e := range endpoints {
		fmt.Fprintf(&b, "- addresses: [%s]\n", e)
	}
	return b.String()
}

func TestWatch(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", service("web", "10.96.0.1")+"---\n"+slice("web-1", "web", "10.0.0.1", "10.0.0.2"))
	write(t, dir, "node.json", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"spec":{"podCIDR":"10.1.0.0/24"}}`)
	write(t, dir, "other.yml", "apiVersion: v1\nkind: Node\nmetadata: {name: n2}\n---\napiVersion: networking.k8s.io/v1\n"+
		"kind: ServiceCIDR\nmetadata: {name: kubernetes}\nspec: {cidrs: [10.96.0.0/12]}\n")
	write(t, dir, "README.md", "not a manifest: {{{")
	write(t, dir, ".hidden.yaml", "not: [a manifest")
	write(t, dir, "web.yaml~", "not: [a manifest")
	l := start(t, dir, nil)
	l.now(func() {
		if len(l.services) != 1 || len(l.slices["default/web-1"].Endpoints) != 2 || l.node == nil || l.node.Name != "n1" ||
			l.cidrs == nil || len(l.problems) != 0 {
			t.Fatalf("first list: %+v", l)
		}
	})
	before := l.count()
	write(t, dir, "a.yaml", service("web", "10.96.0.1")+"---\n"+slice("web-1", "web", "10.0.0.2"))
	l.until(t, "one endpoint", func() bool { return len(l.slices["default/web-1"].Endpoints) == 1 })
	if n := l.count() - before; n != 1 {
		t.Errorf("one changed object gave %d events", n)
	}
	swap(t, dir, "a.yaml", service("web", "10.96.0.1"))
	l.until(t, "slice gone", func() bool { return len(l.slices) == 0 })
	swap(t, dir, "b.yaml", service("db", "10.96.0.2"))
	l.until(t, "new file", func() bool { return l.services["default/db"] != nil })
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	l.until(t, "file gone", func() bool { return len(l.services) == 1 })
	if err := os.Remove(filepath.Join(dir, "other.yml")); err != nil {
		t.Fatal(err)
	}
	l.until(t, "ranges gone", func() bool { return len(l.cidrs.Prefixes) == 0 })
}

func TestLastGoodContentStays(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "good.yaml", service("other", "10.96.0.9"))
	write(t, dir, "web.yaml", service("web", "10.96.0.1")+"---\n"+service("db", "10.96.0.2"))
	l := start(t, dir, nil)
	write(t, dir, "web.yaml", service("web", "10.96.0.3")+"---\napiVersion: v1\nkind: Service\n  bad: indent\n")
	l.until(t, "the line of the mistake", func() bool {
		return slices.Equal(l.allProblems(), []string{"file web.yaml:10: mapping values are not allowed in this context"})
	})
	l.now(func() {
		if len(l.services) != 3 || l.services["default/web"].ClusterIPs[0].String() != "10.96.0.1" {
			t.Errorf("services are %v", l.services)
		}
	})
	write(t, dir, "good.yaml", service("other", "10.96.0.10"))
	l.until(t, "other files go on", func() bool { return l.services["default/other"].ClusterIPs[0].String() == "10.96.0.10" })
	write(t, dir, "web.yaml", service("web", "10.96.0.3"))
	l.until(t, "all well again", func() bool {
		return len(l.problems) == 0 && len(l.services) == 2 && l.services["default/web"].ClusterIPs[0].String() == "10.96.0.3"
	})
}

// A ConfigMap mount swaps a link to a folder; the files are links through it.
func TestConfigMapMount(t *testing.T) {
	dir := t.TempDir()
	version := func(name, text string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), "web.yaml", text)
		if err := os.Symlink(name, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..2026_1", service("web", "10.96.0.1")+"---\n"+service("old", "10.96.1.1"))
	if err := os.Symlink("..data/web.yaml", filepath.Join(dir, "web.yaml")); err != nil {
		t.Fatal(err)
	}
	l := start(t, dir, nil)
	l.now(func() {
		if l.services["default/web"] == nil {
			t.Fatal("not read through the links")
		}
	})
	for i := range 20 {
		name, ip := fmt.Sprintf("..2026_2_%d", i), fmt.Sprintf("10.96.0.%d", 2+i)
		version(name, service("web", ip)+"---\n"+service("old", "10.96.1.1"))
		l.until(t, "the next version", func() bool { return l.services["default/web"].ClusterIPs[0].String() == ip })
		old := "..2026_1"
		if i > 0 {
			old = fmt.Sprintf("..2026_2_%d", i-1)
		}
		if err := os.RemoveAll(filepath.Join(dir, old)); err != nil { // as kubelet does
			t.Fatal(err)
		}
	}
	l.now(func() {
		if len(l.gone) > 0 || len(l.problems) > 0 {
			t.Errorf("taken away: %v; problems %v", l.gone, l.problems)
		}
	})
	// A version with less is whole as well: nothing of it is held back.
	begin := time.Now()
	version("..2026_3", service("web", "10.96.0.99"))
	l.until(t, "the Service that is gone", func() bool { return l.services["default/old"] == nil })
	t.Logf("a Service goes within %s of the swap", time.Since(begin))
}

func TestFolderGoesAndReturns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	l := start(t, dir, func(c *Config) { c.Rescan = 100 * time.Millisecond })
	l.until(t, "missing folder", func() bool { return len(l.problems["folder "+dir]) == 1 })
	for round := range 3 {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("web%d", round)
		write(t, dir, "keep.yaml", service("keep", "10.96.0.1"))
		write(t, dir, name+".yaml", service(name, fmt.Sprintf("10.96.1.%d", round)))
		l.until(t, "what the new folder holds, and no more", func() bool {
			return len(l.problems) == 0 && len(l.services) == 2 && l.services["default/"+name] != nil
		})
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		// Whether RemoveAll is seen file by file is up to the timing; what is left
		// when the folder itself has gone must stay.
		l.until(t, "folder missed", func() bool { return len(l.problems["folder "+dir]) == 1 })
	}
}

// A folder that is swapped whole by renaming loses nothing.
func TestFolderRenamedAway(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "m")
	for _, d := range []string{dir, dir + ".new"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "a.yaml", service("a", "10.96.0.1"))
	write(t, dir+".new", "a.yaml", service("a", "10.96.0.2"))
	l := start(t, dir, nil)
	for _, mv := range [][2]string{{dir, dir + ".old"}, {dir + ".new", dir}} {
		if err := os.Rename(mv[0], mv[1]); err != nil {
			t.Fatal(err)
		}
	}
	l.until(t, "the new folder", func() bool { return l.services["default/a"].ClusterIPs[0].String() == "10.96.0.2" })
	write(t, dir, "a.yaml", service("a", "10.96.0.3"))
	l.until(t, "a change in the new folder", func() bool { return l.services["default/a"].ClusterIPs[0].String() == "10.96.0.3" })
}

// A file that is rewritten in place is empty for a moment.
func TestEmptyForAMoment(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", service("a", "10.96.0.1"))
	l := start(t, dir, nil)
	f, err := os.Create(filepath.Join(dir, "a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write(t, dir, "b.yaml", service("b", "10.96.0.2"))
	l.until(t, "b", func() bool { return l.services["default/b"] != nil })
	l.now(func() {
		if l.services["default/a"] == nil {
			t.Error("a was believed to be gone")
		}
	})
	if _, err := f.WriteString(service("a", "10.96.0.3")); err != nil {
		t.Fatal(err)
	}
	l.until(t, "a rewritten", func() bool { return l.services["default/a"].ClusterIPs[0].String() == "10.96.0.3" })
	write(t, dir, "a.yaml", "# nothing any more\n")
	l.until(t, "a gone", func() bool { return l.services["default/a"] == nil })
}

// No notification reports a change behind a link: the rescan must find it.
func TestRescan(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	write(t, elsewhere, "a.yaml", service("a", "10.96.0.1"))
	if err := os.Symlink(filepath.Join(elsewhere, "a.yaml"), filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	l := start(t, dir, func(c *Config) { c.Rescan = 50 * time.Millisecond })
	write(t, elsewhere, "a.yaml", service("a", "10.96.0.2"))
	l.until(t, "the change", func() bool { return l.services["default/a"].ClusterIPs[0].String() == "10.96.0.2" })
}

// inotify instances are few, and others may have taken them all.
func TestWithoutInotify(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", service("a", "10.96.0.1"))
	l := start(t, dir, func(c *Config) {
		c.Rescan = 20 * time.Millisecond
		c.newWatcher = func() (*inotify, error) { return nil, syscall.EMFILE }
	})
	swap(t, dir, "a.yaml", service("a", "10.96.0.2"))
	l.until(t, "the change", func() bool { return l.services["default/a"].ClusterIPs[0].String() == "10.96.0.2" })
}

// A change must be on its way to the kernel at once, however the file is saved: no rest that we take elsewhere goes before it.
func TestDelay(t *testing.T) {
	for name, save := range map[string]func(*testing.T, string, string, string){"by renaming": swap, "in place": write} {
		t.Run(name, func(t *testing.T) { testDelay(t, save) })
	}
}

func testDelay(t *testing.T, save func(t *testing.T, dir, name, text string)) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", slice("a", "a", "10.0.1.1", "10.0.1.2"))
	l := start(t, dir, nil)
	best := time.Hour
	for i := range 20 {
		begin := time.Now()
		save(t, dir, "a.yaml", slice("a", "a", fmt.Sprintf("10.0.0.%d", i+1)))
		l.until(t, "change", func() bool {
			s := l.slices["default/a"]
			return len(s.Endpoints) == 1 && s.Endpoints[0].Addr.As4()[3] == byte(i+1)
		})
		best = min(best, time.Since(begin))
	}
	t.Logf("from save to event: %v at best", best)
	if best >= patience { // the shortest rest but quiet
		t.Errorf("takes %v", best)
	}
}
