package file

import (
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// hundred is a file of 100 Services and their slices.
func hundred(third byte) string {
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, "---\n%s---\n%s", service(fmt.Sprintf("s%d", i), fmt.Sprintf("10.96.%d.%d", third, i)),
			slice(fmt.Sprintf("s%d-1", i), fmt.Sprintf("s%d", i), fmt.Sprintf("10.0.%d.%d", third, i), "10.0.9.9"))
	}
	return b.String()
}

func (l *listener) addressOf(name string) string {
	if s := l.services["default/"+name]; s != nil && len(s.Ports) > 0 {
		return s.ClusterIPs[0].String()
	}
	return ""
}

// open opens a file for writing; more are flags in addition to O_WRONLY.
func open(t *testing.T, dir, name string, more int) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|more, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func put(t *testing.T, f *os.File, text string) {
	t.Helper()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func closeFile(t *testing.T, f *os.File) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// A file that is written in pieces takes nothing away that its last whole version
// had, wherever the pieces end and however long the writer rests in between.
func TestFileWrittenInPieces(t *testing.T) {
	whole := hundred(2)
	middle := strings.Index(whole, "name: s50}")
	document := strings.LastIndex(whole[:middle], "---\n")
	ports := strings.Index(whole[middle:], "  ports:") + middle
	endpoints := strings.Index(whole[middle:], "endpoints:\n") + middle
	inList := strings.Index(whole[endpoints:], "- addresses: [10.0.9.9]") + endpoints
	for _, c := range []struct {
		name   string
		at     int
		rest   time.Duration // between the pieces
		reopen bool          // the file is closed between the pieces
	}{
		{"two writes 20 ms apart", middle, 20 * time.Millisecond, false},
		{"20 ms at the end of a document", document, 20 * time.Millisecond, false},
		{"before the ports", ports, 20 * time.Millisecond, false},
		{"before the endpoints", endpoints, 20 * time.Millisecond, false},
		{"among the endpoints", inList, 20 * time.Millisecond, false},
		{"a writer that stalls within a document", middle, 300 * time.Millisecond, false},
		{"a writer that stalls for longer than quiet files do", document, 700 * time.Millisecond, false},
		{"a shell that has emptied the file and waits", 0, 700 * time.Millisecond, false},
		{"closed between the pieces", document, 20 * time.Millisecond, true},
		{"closed within a document", middle, 300 * time.Millisecond, true},
		{"closed before the ports", ports, 300 * time.Millisecond, true},
		{"closed before the endpoints", endpoints, 300 * time.Millisecond, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			limit := openPatience
			if c.reopen {
				limit = settle
			}
			inTime(t, limit, func(dir string) {
				f := open(t, dir, "a.yaml", os.O_TRUNC)
				put(t, f, whole[:c.at])
				if c.reopen {
					closeFile(t, f)
				}
				time.Sleep(c.rest) // the rest is what is tested, not waited for
				if c.reopen {
					f = open(t, dir, "a.yaml", os.O_APPEND)
				}
				put(t, f, whole[c.at:])
				closeFile(t, f)
			})
		})
	}
}

// inTime saves a second version of a file of 100 Services, by save, and checks that
// nothing was removed in between. If the machine is so busy that the save itself
// takes longer than the source waits, the run proves nothing and is repeated.
func inTime(t *testing.T, limit time.Duration, save func(dir string)) {
	t.Helper()
	for range 10 {
		dir := t.TempDir()
		write(t, dir, "a.yaml", hundred(1))
		l := start(t, dir, nil)
		begin := time.Now()
		save(dir)
		took := time.Since(begin)
		l.until(t, "the second version", func() bool { return l.addressOf("s99") == "10.96.2.99" && l.addressOf("s0") == "10.96.2.0" })
		l.mu.Lock()
		gone, problems := slices.Clone(l.gone), maps.Clone(l.problems)
		for name, s := range l.slices {
			if len(s.Endpoints) != 2 {
				t.Errorf("%s has %d endpoints", name, len(s.Endpoints))
			}
		}
		l.mu.Unlock()
		if len(gone) == 0 && len(problems) == 0 {
			return
		}
		if took < limit {
			t.Fatalf("taken away: %v; problems %v", gone, problems)
		}
		t.Logf("the save took %s: again", took)
	}
	t.Fatal("taken away ten times in a row")
}

// The last object of a file may lack its tail only: then it parses, and says less. An
// empty file says nothing at all: one that is being rewritten is empty first.
func TestLastObjectCutShort(t *testing.T) {
	for name, c := range map[string]struct{ whole, from string }{
		"ports":     {service("a", "10.96.0.1"), "  ports:"},
		"endpoints": {slice("a", "a", "10.0.0.1"), "- addresses"},
		"all":       {service("a", "10.96.0.1"), "apiVersion"},
	} {
		t.Run(name, func(t *testing.T) {
			l, now := newListener(), time.Now()
			f, m := newFolder(Config{Dir: "/nonexistent", Log: slog.New(slog.DiscardHandler)}), &manifest{name: "f"}
			for _, text := range []string{c.whole, c.whole[:strings.Index(c.whole, c.from)]} {
				again := f.read(m, []byte(text), now, isClosed)
				f.flush(now, l.put)
				if again.IsZero() != (text == c.whole) {
					t.Errorf("read again at %v after %q", again, text)
				}
			}
			if len(l.services)+len(l.slices) == 0 {
				t.Error("the object is gone")
			}
			for _, s := range l.services {
				if len(s.Ports) == 0 {
					t.Error("the ports are gone")
				}
			}
			for _, s := range l.slices {
				if len(s.Endpoints) == 0 {
					t.Error("the endpoints are gone")
				}
			}
		})
	}
}

// A change without a notification is found by a scan, and then nothing is known of
// its writer: the content must not be accepted before the file has settled.
func TestPiecesFoundByLooking(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", hundred(1))
	l, now := newListener(), time.Now()
	f := newFolder(Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	look := func(after time.Duration) time.Time {
		now = now.Add(after)
		again := f.scan(now, looked, none)
		f.flush(now, l.put)
		return again
	}
	look(0)
	whole := hundred(2)
	cut := strings.Index(whole, "---\napiVersion: discovery") // between two documents
	write(t, dir, "a.yaml", whole[:cut])
	if look(time.Second).IsZero() || len(l.services) != 100 {
		t.Fatalf("half a file is believed: %d Services", len(l.services))
	}
	write(t, dir, "a.yaml", whole[:cut+len(whole)/2])
	look(settle - time.Millisecond)
	if again := look(settle - time.Millisecond); again.IsZero() || len(l.gone) > 0 {
		t.Fatalf("more of the file is not waited for; taken away: %v", l.gone)
	}
	write(t, dir, "a.yaml", whole)
	look(2 * time.Millisecond)
	look(settle)
	if l.addressOf("s99") != "10.96.2.99" || len(l.gone) > 0 {
		t.Errorf("the whole file is not read: s99 is %s, taken away: %v", l.addressOf("s99"), l.gone)
	}
	write(t, dir, "a.yaml", service("s0", "10.96.2.0"))
	look(time.Second)
	look(settle)
	if len(l.services) != 1 {
		t.Errorf("a shorter file is never believed: %d Services", len(l.services))
	}
}

// A file that ends among the endpoints of its last object lacks no object: only its
// size shows that it is truncated.
func TestListCutShortFoundByLooking(t *testing.T) {
	dir := t.TempDir()
	text := slice("a", "a", "10.0.0.1", "10.0.0.2", "10.0.0.3")
	write(t, dir, "a.yaml", text)
	l, now := newListener(), time.Now()
	f := newFolder(Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	for _, step := range []struct {
		text  string
		after time.Duration
		want  int
	}{
		{text, 0, 3},
		{strings.TrimSuffix(text, "- addresses: [10.0.0.3]\n"), time.Second, 3},
		{"", settle, 2}, // left alone
	} {
		if step.text != "" {
			write(t, dir, "a.yaml", step.text)
		}
		now = now.Add(step.after)
		f.scan(now, looked, none)
		f.flush(now, l.put)
		if n := len(l.slices["default/a"].Endpoints); n != step.want {
			t.Errorf("%d endpoints, want %d", n, step.want)
		}
	}
}

// The ways in which editors and tools put a new version in place.
func TestEditors(t *testing.T) {
	path := func(dir, name string) string { return filepath.Join(dir, name) }
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pieces := func(t *testing.T, dir, text string) {
		f := open(t, dir, "a.yaml", os.O_CREATE|os.O_EXCL)
		put(t, f, text[:len(text)/2])
		time.Sleep(20 * time.Millisecond) // it is a slow editor that is tested
		put(t, f, text[len(text)/2:])
		closeFile(t, f)
	}
	for name, save := range map[string]func(t *testing.T, dir, text string){
		"vim": func(t *testing.T, dir, text string) {
			must(t, os.Rename(path(dir, "a.yaml"), path(dir, "a.yaml~")))
			time.Sleep(20 * time.Millisecond) // it is a slow editor that is tested
			pieces(t, dir, text)
			must(t, os.Remove(path(dir, "a.yaml~")))
		},
		"emacs": func(t *testing.T, dir, text string) {
			must(t, os.Symlink("user@host.1", path(dir, ".#a.yaml")))
			must(t, os.Rename(path(dir, "a.yaml"), path(dir, "a.yaml~")))
			pieces(t, dir, text)
			must(t, os.Remove(path(dir, ".#a.yaml")))
		},
		"sed": func(t *testing.T, dir, _ string) {
			out, err := exec.Command("sed", "-i", `s/10\.96\.1\./10.96.2./`, path(dir, "a.yaml")).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		},
		"git": func(t *testing.T, dir, text string) {
			must(t, os.Remove(path(dir, "a.yaml")))
			pieces(t, dir, text)
		},
	} {
		t.Run(name, func(t *testing.T) {
			limit := settle
			if name == "git" {
				limit = 0 // a removed file counts as removed after some ms
			}
			inTime(t, limit, func(dir string) { save(t, dir, hundred(2)) })
		})
	}
}

// File servers store times with a resolution of a second or two, and have no inode
// that distinguishes versions.
func TestCoarseTimes(t *testing.T) {
	dir := t.TempDir()
	l, now := newListener(), time.Now().Truncate(time.Second)
	f := newFolder(Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	f.stampOf = func(status fs.FileInfo) stamp {
		return stamp{size: status.Size(), modified: status.ModTime().Truncate(2 * time.Second).UnixNano()}
	}
	for i, ip := range []string{"10.96.0.1", "10.96.0.2"} {
		write(t, dir, "a.yaml", service("a", ip))
		if err := os.Chtimes(filepath.Join(dir, "a.yaml"), now, now); err != nil {
			t.Fatal(err)
		}
		f.scan(now.Add(time.Duration(i)*900*time.Millisecond), looked, none)
		f.flush(now, l.put)
		if got := l.addressOf("a"); got != ip {
			t.Errorf("version %d: the address is %s, want %s", i+1, got, ip)
		}
	}
}

// Of a folder that was made again the files come one by one.
func TestFolderMadeAgainIsFilledSlowly(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", service("a", "10.96.0.1"))
	l, now := newListener(), time.Now()
	f := newFolder(Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	look := func(at time.Duration) {
		f.scan(now.Add(at), looked, none)
		f.flush(now, l.put)
	}
	look(0)
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	f.replaced = true
	look(time.Millisecond)
	look(returnGrace - 10*time.Millisecond)
	if l.services["default/a"] == nil {
		t.Error("a file that has not come yet is taken for one that is gone")
	}
	look(returnGrace + 2*time.Millisecond)
	look(returnGrace + settle + 10*time.Millisecond)
	if l.services["default/a"] != nil {
		t.Error("a file that does not come is never believed to be gone")
	}
}
