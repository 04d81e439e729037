package file

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/source/convert"
)

const (
	// returnGrace is how long files may be missing from a folder that was made
	// again, before they are.
	returnGrace = time.Second
	// youngest is the age under which a time of modification does not prove that a
	// file has not changed since: file systems keep it in steps of up to 2 s, and
	// the clock of a file server may be some seconds off.
	youngest = 10 * time.Second
	// largest is the size of a file above which it is not read: much more would not
	// fit into memory together with what becomes of it.
	largest = 256 << 20
)

var errNotRegular = errors.New("not a regular file")

// stamp distinguishes one content of a file from the next without reading it.
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
	stampOf func(fs.FileInfo) stamp
	node    string // our own
	empty   bool   // a folder without manifests is one that means it

	lost     string          // why the folder cannot be read; "" if it can
	told     []model.Problem // of the folder itself
	scanned  bool            // the folder could be read once
	settled  bool            // everything could: Synced has been told
	started  bool
	replaced bool // the folder is another one than before
	// holdUntil: until then a file that is missing counts as not there yet.
	holdUntil time.Time

	unreadNode bool // a file seems to hold a Node and could not be read
}

func newFolder(c Config) *folder {
	read := convert.New()
	read.LocalEndpoints = c.LocalEndpoints
	return &folder{
		dir: c.Dir, log: c.Log, seed: maphash.MakeSeed(), stampOf: stampOf, node: c.NodeName, empty: c.EmptyDeletes,
		reader: &reader{convert: read, nodeName: c.NodeName, headless: c.Headless},
		files:  make(map[string]*manifest), catalog: newCatalog(), ignored: make(map[string]bool),
	}
}

// isManifest reports whether a file of that name counts: no dot files, in which
// editors and ConfigMap mounts keep what is theirs.
func isManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return !strings.HasPrefix(name, ".")
	}
	return false
}

// scan reads every file that has changed and is not to be skipped, and forgets
// those that are gone. how is what is known of files that are reached through a
// link. It gives the time after which it should be called again, zero if there is
// none.
func (f *folder) scan(now time.Time, how certainty, skip func(name string) bool) (again time.Time) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		f.lost = strings.TrimPrefix(err.Error(), "open "+f.dir+": ")
		return time.Time{} // what was read before stays
	}
	if f.lost != "" || f.replaced {
		f.holdUntil = now.Add(returnGrace)
	}
	f.lost, f.replaced, f.scanned = "", false, true
	present := make(map[string]bool, len(entries))
	for _, e := range entries {
		if !isManifest(e.Name()) {
			continue
		}
		present[e.Name()] = true
		if skip(e.Name()) {
			continue
		}
		surely := looked
		if e.Type()&fs.ModeSymlink != 0 {
			surely = how
		}
		again = sooner(again, f.refresh(e.Name(), now, surely))
	}
	for name := range f.files {
		if !present[name] && !skip(name) {
			again = sooner(again, f.refresh(name, now, looked))
		}
	}
	return again
}

// sooner returns the earlier of two times, of which zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// refresh reads one file, if it has changed or something was told of it. It gives
// the time after which it should be called again, zero if there is none.
func (f *folder) refresh(name string, now time.Time, how certainty) (again time.Time) {
	path := filepath.Join(f.dir, name)
	status, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f.forget(name, now, how)
	}
	m := f.files[name]
	if m == nil {
		m = &manifest{name: name}
		f.files[name] = m
	}
	m.missing = time.Time{}
	if err != nil {
		return m.unreadable(path, err)
	}
	mark, told := f.stampOf(status), how != looked
	if !told {
		var wanted bool
		if wanted, how, again = m.wanted(mark, now); !wanted {
			return again
		}
	}
	r, err := load(path, status)
	if errors.Is(err, fs.ErrNotExist) {
		return f.forget(name, now, how)
	}
	if err != nil {
		return m.unreadable(path, err)
	}
	m.stamp, m.seen, m.modified = mark, mark, status.ModTime()
	if now.Sub(m.modified) < youngest {
		m.stamp = stamp{} // look again next time
	}
	how = r.known(how, told, f.stampOf(r.after) != mark)
	again = f.read(m, r.data, now, how)
	// A program may have the file open and mean to write nothing more, ever.
	age := now.Sub(m.modified)
	m.writing = r.writing && age >= 0 && age < openPatience
	m.sure = m.sure || m.entire && !m.writing
	if !m.sure && m.writing { // Synced waits for the rest of it
		m.stamp = stamp{}
		again = sooner(again, now.Add(settle))
	}
	return again
}

// wanted reports whether a file that was found by looking is to be read, what is
// known of its writer, and if not, when to look again.
func (m *manifest) wanted(mark stamp, now time.Time) (wanted bool, how certainty, again time.Time) {
	if m.hold.until.IsZero() {
		return mark != m.stamp, looked, time.Time{}
	}
	again = m.hold.still(mark, now)
	return again.IsZero(), isWhole, again // what has been left alone for long enough counts
}

// reading is a file's text, and what was found of it behind that.
type reading struct {
	data    []byte
	writing bool // somebody has it open to write
	after   fs.FileInfo
}

func load(path string, status fs.FileInfo) (r reading, err error) {
	switch {
	case !status.Mode().IsRegular():
		return r, errNotRegular // reading a pipe would wait forever
	case status.Size() > largest:
		return r, fmt.Errorf("it is larger than %d MiB: split it", largest>>20)
	}
	file, err := os.Open(path)
	if err != nil {
		return r, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	buffer := bytes.NewBuffer(make([]byte, 0, status.Size()+512))
	if _, err = buffer.ReadFrom(io.LimitReader(file, largest)); err != nil {
		return r, err
	}
	r.data, r.writing = buffer.Bytes(), beingWritten(file)
	r.after, err = file.Stat()
	return r, err
}

// known reports what is known of the writer of what was read: it may be the next one after the
// one that was told of, or that has left the file alone.
func (r *reading) known(how certainty, told, changed bool) certainty {
	switch {
	case changed:
		return looked
	case told && r.writing:
		return min(how, stillOpen)
	}
	return how
}

// nodeLine matches a line of text that cannot be parsed and seems to be a Node's: the folder describes a cluster, though no Node is known.
var nodeLine = regexp.MustCompile(`(?m)^\s*"?kind"?:\s*["']?Node["']?,?\s*$`)

// read takes in a file's text, unless it looks like half of one.
func (f *folder) read(m *manifest, data []byte, now time.Time, how certainty) (again time.Time) {
	c := parse(f.reader, f.seed, m, data)
	f.unreadNode = f.unreadNode || c.unreadable && nodeLine.Match(data)
	if m.halfWritten(&c, now, how) {
		m.hold = hold{until: now.Add(settle), mark: m.seen}
		if how == stillOpen {
			m.hold.until = now.Add(openPatience)
		}
		m.stamp = stamp{}
		return m.hold.until
	}
	m.hold, m.lacking = hold{}, lacking{}
	for _, k := range c.ignored {
		if !f.ignored[k] {
			f.ignored[k] = true
			f.log.Debug("kind ignored", "kind", k, "file", m.name)
		}
	}
	before := m.accept(&c)
	m.entire = !c.unreadable && !c.undefined
	f.catalog.replace(m, before, m.objects)
	return time.Time{}
}

// forget drops what a file said that is gone. That is believed at once if the
// file was removed, and after some time if it was moved: then it may be the
// backup that an editor makes before it writes the next version.
func (f *folder) forget(name string, now time.Time, how certainty) (again time.Time) {
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
	if m.missing.IsZero() {
		m.missing = now
	}
	if until := m.missing.Add(settle); how != isClosed && now.Before(until) {
		return until
	}
	f.catalog.replace(m, m.objects, nil)
	m.objects, m.problems, m.hold, m.loaded = nil, nil, hold{}, false
	return time.Time{}
}

// gone reports whether the folder itself is not there, and notes it.
func (f *folder) gone() bool {
	if _, err := os.Stat(f.dir); err != nil {
		f.lost = strings.TrimPrefix(err.Error(), "stat "+f.dir+": ")
		return true
	}
	return false
}

// flush delivers what the last readings have changed.
func (f *folder) flush(now time.Time, sink func(model.Event)) {
	if f.unreadNode {
		f.catalog.ofCluster(now, sink)
	}
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
	if problems := f.troubles(); !slices.Equal(problems, f.told) {
		f.told = problems
		sink(model.Event{Origin: f.origin(), Problems: problems, Received: now})
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
