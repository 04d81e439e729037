package file

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

func (l *listener) says(words ...string) bool {
	return slices.ContainsFunc(l.allProblems(), func(p string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(p, w) })
	})
}

// neverSynced checks that the source has not said Synced, and Listed so many times.
func neverSynced(t *testing.T, l *listener, listed int) {
	t.Helper()
	l.until(t, "Listed", func() bool { return l.listed >= listed })
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.synced != 0 || l.listed != listed {
		t.Fatalf("Synced %d times, Listed %d times instead of 0 and %d", l.synced, l.listed, listed)
	}
}

// What an earlier run left must not go before the folder is known: a folder that
// is missing, one that is empty, and one with a file that does not parse are not.
func TestSyncedOnlyWhenAllIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		before func(t *testing.T, dir string)
		says   []string
		listed int // 1: something can be followed
		mend   func(t *testing.T, dir string)
	}{
		"missing": {
			func(t *testing.T, dir string) { remove(t, dir) }, []string{"cannot be read: no such file or directory"}, 0,
			func(t *testing.T, dir string) {
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				write(t, dir, "a.yaml", service("a", "10.96.0.1"))
			},
		},
		"empty": {
			func(*testing.T, string) {}, []string{"holds no Service", "--manifests-empty=delete"}, 0,
			func(t *testing.T, dir string) { write(t, dir, "a.yaml", service("a", "10.96.0.1")) },
		},
		"nothing for a proxy": {
			func(t *testing.T, dir string) {
				write(t, dir, "pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n")
			},
			[]string{"holds no Service"}, 0,
			func(t *testing.T, dir string) { write(t, dir, "a.yaml", service("a", "10.96.0.1")) },
		},
		"not YAML": {
			func(t *testing.T, dir string) {
				write(t, dir, "a.yaml", service("a", "10.96.0.1"))
				write(t, dir, "b.yaml", "kind: [\n")
			}, []string{"not every file", "all other files are used", "b.yaml"}, 1,
			func(t *testing.T, dir string) { write(t, dir, "b.yaml", service("b", "10.96.0.2")) },
		},
		"nothing but what is not YAML": {
			func(t *testing.T, dir string) { write(t, dir, "b.yaml", "kind: [\n") }, []string{"no file of", "b.yaml"}, 0,
			func(t *testing.T, dir string) { write(t, dir, "b.yaml", service("a", "10.96.0.1")) },
		},
		"two that cannot be read, of which one is removed": {
			func(t *testing.T, dir string) {
				write(t, dir, "a.yaml", service("a", "10.96.0.1"))
				write(t, dir, "b.yaml", "kind: [\n")
				write(t, dir, "c.yaml", "just text\n")
			}, []string{"not every file", "b.yaml, c.yaml"}, 1,
			func(t *testing.T, dir string) {
				remove(t, filepath.Join(dir, "b.yaml"))
				write(t, dir, "c.yaml", service("c", "10.96.0.3"))
			},
		},
		"an object that cannot be decoded": {
			func(t *testing.T, dir string) {
				write(t, dir, "a.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: x, creationTimestamp: soon}\n---\n"+service("a", "10.96.0.1"))
			}, []string{"not every file", "a.yaml"}, 1,
			func(t *testing.T, dir string) {
				remove(t, filepath.Join(dir, "a.yaml"))
				write(t, dir, "b.yaml", service("a", "10.96.0.1"))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "m")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			c.before(t, dir)
			l := start(t, dir, func(c *Config) { c.Rescan = 20 * time.Millisecond })
			l.until(t, "why", func() bool { return l.says(c.says...) })
			neverSynced(t, l, c.listed)
			c.mend(t, dir)
			l.until(t, "Synced", func() bool { return l.synced == 1 && l.services["default/a"] != nil && len(l.problems) == 0 })
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// A file of kustomize or Helm that can be parsed defines no object: nothing waits for it.
func TestFilesOfOtherPrograms(t *testing.T) {
	for name, text := range map[string]string{
		"kustomization.yaml": "resources:\n- a.yaml\n",
		"kustomization.yml":  "resources: []\n",
		"overlay.yaml":       "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n",
		"Chart.yaml":         "apiVersion: v2\nname: web\n",
		"values.yaml":        "replicas: 2\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "a.yaml", service("a", "10.96.0.1"))
			write(t, dir, name, text)
			l := start(t, dir, nil)
			l.until(t, "Synced", func() bool { return l.synced == 1 && l.services["default/a"] != nil })
			l.now(func() {
				if l.listed != 0 || len(l.allProblems()) != 1 || !l.says("file "+name, "defines no object for Services") {
					t.Errorf("Listed %d times, says %q", l.listed, l.allProblems())
				}
			})
		})
	}
}

// A file that cannot be parsed is one that cannot be read, whatever its name is, and what it held before stays; so does what a file with Services held
// when it has become one without a kind.
func TestServicesInFilesOfOtherPrograms(t *testing.T) {
	for name, text := range map[string]string{
		"values.yaml":        service("a", "10.96.0.1") + "---\nkind: [",
		"Chart.yaml":         "apiVersion: v1\n",
		"kustomization.yaml": "resources: [\n",
	} {
		dir := t.TempDir()
		f, l := newFolder(Config{Dir: dir, NodeName: "n1", Log: slog.New(slog.DiscardHandler)}), newListener()
		write(t, dir, name, service("a", "10.96.0.1")+"---\n"+service("b", "10.96.0.2"))
		f.scan(time.Now(), looked, none)
		f.flush(time.Now(), l.put)
		write(t, dir, name, text)
		f.refresh(name, time.Now(), isWhole)
		f.flush(time.Now(), l.put)
		if len(l.services) != 2 || len(l.allProblems()) == 0 {
			t.Errorf("%s: %d Services stay, want 2; problems %q", name, len(l.services), l.allProblems())
		}

		other := t.TempDir()
		write(t, other, name, "resources: [\n")
		f = newFolder(Config{Dir: other, NodeName: "n1", EmptyDeletes: true, Log: slog.New(slog.DiscardHandler)})
		f.scan(time.Now(), looked, none)
		if f.complete() {
			t.Errorf("%s: a folder is complete with a file that cannot be parsed", name)
		}
	}
}

// Who means an empty folder says so.
func TestEmptyFolderThatIsMeant(t *testing.T) {
	l := start(t, t.TempDir(), func(c *Config) { c.EmptyDeletes = true })
	l.until(t, "Synced", func() bool { return l.synced == 1 && len(l.problems) == 0 })
	missing := start(t, filepath.Join(t.TempDir(), "missing"), func(c *Config) { c.EmptyDeletes = true })
	missing.until(t, "the complaint", func() bool { return missing.says("cannot be read") })
	neverSynced(t, missing, 0)
}

// A file that is being written while the agent starts is not all that it will be.
func TestFileThatIsBeingWrittenAtTheStart(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir, "a.yaml", os.O_CREATE)
	put(t, f, service("a", "10.96.0.1"))
	l := start(t, dir, nil)
	l.until(t, "why it waits", func() bool { return l.says("are being written", "a.yaml") })
	neverSynced(t, l, 1)
	put(t, f, "---\n"+service("b", "10.96.0.2"))
	closeFile(t, f)
	l.until(t, "Synced", func() bool { return l.synced == 1 })
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.services) != 2 {
		t.Errorf("synced with %d Services", len(l.services))
	}
}

// A program may keep a file open for as long as it runs: a file that has not been
// written to for some time counts as complete.
func TestFileThatStaysOpen(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir, "a.yaml", os.O_CREATE)
	put(t, f, service("a", "10.96.0.1"))
	for _, since := range []time.Duration{-time.Hour, 2 * openPatience} { // a clock may have been set back, too
		at := time.Now().Add(-since)
		if err := os.Chtimes(f.Name(), at, at); err != nil {
			t.Fatal(err)
		}
		l := start(t, dir, nil)
		l.until(t, "Synced", func() bool { return l.synced == 1 && len(l.services) == 1 })
	}
	closeFile(t, f)
}

// A folder that is moved away while the agent runs, for whatever reason, takes
// nothing with it.
func TestFolderMovedAway(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "m")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "a.yaml", hundred(1))
	l := start(t, dir, func(c *Config) { c.Rescan = 20 * time.Millisecond })
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	l.until(t, "the complaint", func() bool { return l.says("cannot be read", "stay") })
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	l.until(t, "all well", func() bool { return len(l.problems) == 0 })
	write(t, dir, "a.yaml", hundred(2))
	l.until(t, "a change afterwards", func() bool { return l.addressOf("s7") == "10.96.2.7" })
	l.now(func() {
		if len(l.gone) > 0 {
			t.Errorf("taken away: %v", l.gone)
		}
	})
}

// A folder whose file with a Node cannot be read describes a cluster: its NodePorts are not those of a machine without one. A broken file without a
// Node does not change that.
func TestUnreadNodeIsOfACluster(t *testing.T) {
	for text, want := range map[string]bool{
		"apiVersion: v1\nkind: Node\nmetadata: {name: n1\n":        true,
		"{\n  \"kind\": \"Node\",\n  \"metadata\": {\n":            true,
		"apiVersion: v1\nkind: Service\nmetadata: {name: Node\n":   false,
		"apiVersion: v1\nkind: NodeMetrics\nmetadata: {name: n1\n": false,
	} {
		dir := t.TempDir()
		write(t, dir, "a.yaml", service("a", "10.96.0.1"))
		write(t, dir, "broken.yaml", text)
		f, cluster := newFolder(Config{Dir: dir, NodeName: "n1", Log: slog.New(slog.DiscardHandler)}), false
		f.scan(time.Now(), looked, none)
		f.flush(time.Now(), func(ev model.Event) { cluster = cluster || ev.Cluster })
		if cluster != want {
			t.Errorf("%q: of a cluster: %v, want %v", text, cluster, want)
		}
	}
}

// A node whose name no Node of the folder has is served without zone and addresses.
func TestNodeOfAnotherName(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "nodes.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: n2}\n")
	f := newFolder(Config{Dir: dir, NodeName: "n1", Log: slog.New(slog.DiscardHandler)})
	l := newListener()
	look := func() {
		f.scan(time.Now(), looked, none)
		f.flush(time.Now(), l.put)
	}
	look()
	if !l.says("holds no Node n1", "--hostname-override", "n2") {
		t.Errorf("problems %q", l.allProblems())
	}
	write(t, dir, "n1.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")
	look()
	if len(l.problems) != 0 {
		t.Errorf("problems %q", l.allProblems())
	}
}
