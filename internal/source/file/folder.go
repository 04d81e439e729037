package file

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/source/convert"
)

const (
	// emptyGrace is how long a file that was not empty may be so before it is
	// believed. Writing a file in place empties it first.
	emptyGrace = 300 * time.Millisecond
	// returnGrace is how long files may be missing from a folder that was made
	// again, before they are.
	returnGrace = time.Second
	// youngest is the age under which a time of modification does not prove that a
	// file has not changed since: file systems keep it in steps of some ms.
	youngest = 50 * time.Millisecond
)

// stamp tells one content of a file from the next without reading it.
type stamp struct {
	device, inode  uint64
	size           int64
	modified, meta int64 // ns
}

// folder is the reading of the files, and the events that come of it.
type folder struct {
	dir     string
	log     *slog.Logger
	reader  *reader
	seed    maphash.Seed
	files   map[string]*manifest
	catalog *catalog
	ignored map[string]bool // kinds said to be ignored
	lost    string          // why the folder cannot be read; "" if it can
	toldLost,
	started bool
	replaced bool // the folder is another one than before
	// holdUntil: until then a file that is missing counts as not there yet.
	holdUntil time.Time
}

func newFolder(c Config) *folder {
	return &folder{
		dir: c.Dir, log: c.Log, seed: maphash.MakeSeed(),
		reader: &reader{convert: convert.New(), nodeName: c.NodeName, headless: c.Headless},
		files:  make(map[string]*manifest), catalog: newCatalog(), ignored: make(map[string]bool),
	}
}

// isManifest tells whether a file of that name counts: no dot files, in which
// editors and ConfigMap mounts keep what is theirs.
func isManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return !strings.HasPrefix(name, ".")
	}
	return false
}

// scan reads every file that has changed, and forgets those that are gone. It
// gives the time after which it should be called again, zero if there is none.
func (f *folder) scan(now time.Time) (again time.Time) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		f.lost = strings.TrimPrefix(err.Error(), "open "+f.dir+": ")
		return time.Time{} // what was read before stays
	}
	if f.lost != "" || f.replaced {
		f.holdUntil = now.Add(returnGrace)
	}
	f.lost, f.replaced = "", false
	present := make(map[string]bool, len(entries))
	for _, e := range entries {
		if !isManifest(e.Name()) {
			continue
		}
		present[e.Name()] = true
		again = sooner(again, f.refresh(e.Name(), now, false))
	}
	for name := range f.files {
		if !present[name] {
			again = sooner(again, f.refresh(name, now, true))
		}
	}
	return again
}

// sooner gives the earlier of two times, of which zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// refresh reads one file, if it has changed or force is set. It gives the time
// after which it should be called again, zero if there is none.
func (f *folder) refresh(name string, now time.Time, force bool) (again time.Time) {
	path := filepath.Join(f.dir, name)
	status, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f.forget(name, now)
	}
	m := f.files[name]
	if m == nil {
		m = &manifest{name: name}
		f.files[name] = m
	}
	var data []byte
	mark := stampOf(status)
	switch {
	case err != nil:
	case !status.Mode().IsRegular():
		err = errors.New("not a regular file") // reading a pipe would wait forever
	case !force && mark == m.stamp:
		return time.Time{}
	default:
		data, err = os.ReadFile(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return f.forget(name, now)
	}
	if err != nil {
		m.stamp, m.problems = stamp{}, []model.Problem{{
			Object: m.origin(), Reason: "cannot be read: " + strings.TrimPrefix(err.Error(), "open "+path+": "),
		}}
		return time.Time{}
	}
	m.stamp, m.modified = mark, status.ModTime()
	if now.Sub(m.modified) < youngest {
		m.stamp = stamp{} // look again next time
	}
	return f.read(m, data, now)
}

// read takes in a file's text.
func (f *folder) read(m *manifest, data []byte, now time.Time) (again time.Time) {
	c := parse(f.reader, f.seed, m, data)
	if len(c.docs) == 0 && len(m.objects) > 0 {
		if m.emptySince.IsZero() {
			m.emptySince = now
		}
		if now.Sub(m.emptySince) < emptyGrace {
			m.stamp = stamp{}
			return m.emptySince.Add(emptyGrace)
		}
	}
	m.emptySince = time.Time{}
	for _, k := range c.ignored {
		if !f.ignored[k] {
			f.ignored[k] = true
			f.log.Debug("kind ignored", "kind", k, "file", m.name)
		}
	}
	before := m.accept(c)
	f.catalog.replace(m, before, m.objects)
	return time.Time{}
}

// forget drops what a file said that is gone.
func (f *folder) forget(name string, now time.Time) (again time.Time) {
	m := f.files[name]
	if m == nil {
		return time.Time{}
	}
	if now.Before(f.holdUntil) {
		m.stamp = stamp{}
		return f.holdUntil
	}
	if f.gone() {
		return time.Time{} // the whole folder is: scan says so
	}
	f.catalog.replace(m, m.objects, nil)
	m.objects, m.problems = nil, nil
	return time.Time{}
}

// gone tells whether the folder itself is not there, and notes it.
func (f *folder) gone() bool {
	if _, err := os.Stat(f.dir); err != nil {
		f.lost = strings.TrimPrefix(err.Error(), "stat "+f.dir+": ")
		return true
	}
	return false
}

// flush delivers what the last readings have changed.
func (f *folder) flush(now time.Time, sink func(model.Event)) {
	f.catalog.flush(now, f.started, sink)
	for name, m := range f.files {
		if !slices.Equal(m.problems, m.told) {
			m.told = m.problems
			sink(model.Event{Origin: m.origin(), Problems: m.problems, Received: now})
		}
		if m.objects == nil && m.problems == nil {
			if _, err := os.Lstat(filepath.Join(f.dir, name)); err != nil {
				delete(f.files, name)
			}
		}
	}
	if (f.lost != "") != f.toldLost {
		f.toldLost = f.lost != ""
		event := model.Event{Origin: "folder " + f.dir, Received: now}
		if f.toldLost {
			event.Problems = []model.Problem{{
				Object: event.Origin, Reason: fmt.Sprintf("cannot be read: %s: what was read before stays", f.lost),
			}}
		}
		sink(event)
	}
	f.started = true
}

func stampOf(status fs.FileInfo) stamp {
	s := stamp{size: status.Size(), modified: status.ModTime().UnixNano()}
	if sys, ok := status.Sys().(*syscall.Stat_t); ok {
		s.device, s.inode, s.meta = sys.Dev, sys.Ino, sys.Ctim.Nano()
	}
	return s
}
