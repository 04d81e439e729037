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
	// returnGrace is how long files may be missing from a folder that was
	// recreated before they count as removed.
	returnGrace = time.Second
	// youngest is the age below which an unchanged modification time does not
	// prove that the file is unchanged. File systems store it with a resolution of
	// up to 2 s, and the clock of a file server may be some seconds off.
	youngest = 10 * time.Second
	// largest is the size of a file in bytes above which it is not read. A much
	// larger file and the objects decoded from it would not fit into memory.
	largest = 256 << 20
)

var errNotRegular = errors.New("not a regular file")

// stamp identifies a version of a file's content without reading it.
type stamp struct {
	device, inode  uint64
	size           int64
	modified, meta int64 // ns
}

// folder is the state of the folder: it reads the files and emits the resulting
// events.
type folder struct {
	dir     string
	log     *slog.Logger
	reader  *reader
	seed    maphash.Seed
	files   map[string]*manifest
	catalog *catalog
	ignored map[string]bool // kinds already logged as ignored
	stampOf func(fs.FileInfo) stamp
	node    string // the name of the agent's own Node
	empty   bool   // a folder without manifests means that there are no Services

	lost     string          // why the folder cannot be read; "" if it can
	told     []model.Problem // the Problems of the folder itself that were delivered
	scanned  bool            // the folder could be read at least once
	settled  bool            // everything could be read: Synced has been delivered
	started  bool
	replaced bool // the folder was removed or renamed, and another one may have its name now
	// holdUntil is the time before which a missing file counts as not yet
	// recreated.
	holdUntil time.Time

	unreadNode bool // a file seems to hold a Node and could not be parsed
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

// isManifest reports whether a file of that name is read. Dot files are not,
// because editors and ConfigMap mounts keep internal files under such names.
func isManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return !strings.HasPrefix(name, ".")
	}
	return false
}

// scan reads every file that has changed, except those for which skip returns true,
// and forgets the files that are gone. how is the certainty for files that are
// symbolic links. It returns the time after which it must be called again, zero if
// it need not be.
func (f *folder) scan(now time.Time, how certainty, skip func(name string) bool) (again time.Time) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		f.lost = strings.TrimPrefix(err.Error(), "open "+f.dir+": ")
		return time.Time{} // the content that was read before stays in use
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

// sooner returns the earlier of two times. Zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// refresh reads one file if it has changed or if there was a notification about it.
// It returns the time after which it must be called again, zero if it need not be.
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
		m.stamp = stamp{} // read the file again at the next scan
	}
	how = r.known(how, told, f.stampOf(r.after) != mark)
	again = f.read(m, r.data, now, how)
	// A program may keep the file open for writing and never write again.
	age := now.Sub(m.modified)
	m.writing = r.writing && age >= 0 && age < openPatience
	m.sure = m.sure || m.entire && !m.writing
	if !m.sure && m.writing { // Synced waits until the file is complete
		m.stamp = stamp{}
		again = sooner(again, now.Add(settle))
	}
	return again
}

// wanted reports whether a file that was found by a scan must be read, what is
// known of its writer, and if it must not be read, when to check it again.
func (m *manifest) wanted(mark stamp, now time.Time) (wanted bool, how certainty, again time.Time) {
	if m.hold.until.IsZero() {
		return mark != m.stamp, looked, time.Time{}
	}
	again = m.hold.still(mark, now)
	return again.IsZero(), isWhole, again // a file that has not changed for long enough counts as complete
}

// reading is a file's text and the file's status after the read.
type reading struct {
	data    []byte
	writing bool // another program has it open for writing
	after   fs.FileInfo
}

func load(path string, status fs.FileInfo) (r reading, err error) {
	switch {
	case !status.Mode().IsRegular():
		return r, errNotRegular // a read from a pipe could block forever
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

// known returns what is known of the writer of the content that was read. It lowers how if
// another program may have written since the notification, or since the file was last found
// unchanged.
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

// read parses a file's text and accepts it, unless the file seems to be half
// written.
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

// forget drops the objects of a file that is gone. A removed file is dropped at
// once. A file that was moved away is dropped only after the settle time, because
// it may be the backup that an editor makes before it writes the next version.
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
		return time.Time{} // the whole folder is gone, and scan reports that
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

// gone reports whether the folder itself does not exist, and records the reason in
// lost.
func (f *folder) gone() bool {
	if _, err := os.Stat(f.dir); err != nil {
		f.lost = strings.TrimPrefix(err.Error(), "stat "+f.dir+": ")
		return true
	}
	return false
}

// flush delivers what has changed since the last flush.
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
