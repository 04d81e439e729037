package file

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

const (
	// quiet is how long to wait behind the last notification of a file: several
	// changes at once are one reading.
	quiet = 3 * time.Millisecond
	// patience bounds the wait for a file that is saved all the time.
	patience = 250 * time.Millisecond
	// lostRescan is how often a folder that is not there is looked for; the
	// folder above it may be missing, too, and then nothing tells.
	lostRescan = time.Second
)

// everything is the name under which a look at the whole folder is pending.
const everything = ""

// burst is a number of notifications of one file that are answered by one reading.
type burst struct {
	first, last time.Time
	open        bool // somebody writes, and has not closed the file
	how         certainty
}

// due reports when to read.
func (b *burst) due() time.Time {
	if b.open {
		return b.last.Add(settle)
	}
	return sooner(b.last.Add(quiet), b.first.Add(patience))
}

// notifier is what is needed of inotify.
type notifier interface {
	Add(path string) error
	Remove(path string) error
}

var _ notifier = (*inotify)(nil)

// unwatched is a notifier that never tells anything.
type unwatched struct{}

func (unwatched) Add(string) error    { return nil }
func (unwatched) Remove(string) error { return nil }

// watch is the loop of Source.Run.
type watch struct {
	notify  notifier
	changes <-chan change // nil if there is none to come
	lost    <-chan struct{}
	folder  *folder
	sink    func(model.Event)
	rescan  time.Duration
	pending map[string]*burst

	watched os.FileInfo // the folder that notify watches; nil if none
	warned  bool        // that it cannot be watched
	listed  bool        // Listed has been told
	next    time.Time   // of the look that nobody asks for
	again   time.Time   // of the look that a reading asked for; zero if none did
}

func (w *watch) run(ctx context.Context) error {
	w.look(time.Now(), looked)
	w.deliver()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(time.Until(w.wake()))
		select {
		case <-ctx.Done():
			return nil
		case c := <-w.changes:
			w.note(c)
		case <-w.lost: // the queue has overflowed: what was in it is unknown
			w.watched = nil
			clear(w.pending)
			w.markAll(looked)
		case <-timer.C:
			w.read(time.Now())
		}
	}
}

// deliver reports what the last readings have changed, once that they are a part of the folder, and once that they
// are all.
func (w *watch) deliver() {
	w.folder.flush(time.Now(), w.sink)
	switch {
	case w.folder.settled:
	case w.folder.complete():
		w.folder.settled = true
		w.sink(model.Event{Synced: Name, Received: time.Now()})
	case !w.listed && w.folder.listed():
		w.listed = true
		w.sink(model.Event{Listed: Name, Received: time.Now()})
	}
}

// wake reports when there is something to do.
func (w *watch) wake() time.Time {
	at := sooner(w.next, w.again)
	for _, b := range w.pending {
		at = sooner(at, b.due())
	}
	return at
}

// interval is the time to the next look that nobody asks for.
func (w *watch) interval() time.Duration {
	if w.watched == nil || w.folder.lost != "" {
		return min(lostRescan, w.rescan)
	}
	return w.rescan
}

// note notes which file a notification is about.
func (w *watch) note(c change) {
	dir, name := filepath.Dir(c.path), filepath.Base(c.path)
	switch {
	case c.path == w.folder.dir: // removed, renamed, or made again
		if c.what == removed || c.what == movedAway {
			w.watched, w.folder.replaced = nil, true // the next one may have the same inode
		}
		w.markAll(looked)
	case dir != w.folder.dir: // the folder above, about something else
	case isManifest(name):
		w.mark(name, c.what)
	case name == "..data" && c.what == movedIn: // so a ConfigMap mount goes from one version to the next
		w.markAll(isWhole)
	case strings.HasPrefix(name, ".."):
		w.markAll(looked)
	}
}

// markAll makes a look at the whole folder pending.
func (w *watch) markAll(how certainty) {
	now := time.Now()
	b := w.pending[everything]
	if b == nil {
		b = &burst{first: now}
		w.pending[everything] = b
	}
	b.last, b.how = now, max(b.how, how)
}

// mark makes a reading of one file pending.
func (w *watch) mark(name string, what happening) {
	now := time.Now()
	b := w.pending[name]
	if b == nil {
		b = &burst{first: now}
		w.pending[name] = b
	}
	b.last = now
	switch what {
	case written:
		b.open, b.how = true, stillOpen
	case created:
		b.open, b.how = !isLink(filepath.Join(w.folder.dir, name)), stillOpen
	case closed, removed:
		b.open, b.how = false, isClosed
	case movedIn:
		b.open, b.how = false, isWhole
	case movedAway: // an editor's backup: the next version comes in a moment
		b.open, b.how = false, looked
	}
}

// isLink reports whether a new name is one of something that is elsewhere, too:
// nobody is going to write and close it.
func isLink(path string) bool {
	status, err := os.Lstat(path)
	if err != nil {
		return false
	}
	sys, ok := status.Sys().(*syscall.Stat_t)
	return status.Mode()&os.ModeSymlink != 0 || (ok && sys.Nlink > 1)
}

// read reads what is due, and delivers what comes of it.
func (w *watch) read(now time.Time) {
	whole := w.pending[everything]
	asked := whole != nil && !now.Before(whole.due())
	if asked || !now.Before(sooner(w.next, w.again)) {
		how := looked
		if asked {
			how = whole.how
			delete(w.pending, everything)
		}
		w.look(now, how)
	}
	for name, b := range w.pending {
		if name == everything || now.Before(b.due()) {
			continue
		}
		delete(w.pending, name)
		w.again = sooner(w.again, w.folder.refresh(name, now, b.how))
	}
	w.deliver()
}

// look reads whatever in the folder has changed, but for the files of which
// notifications are pending.
func (w *watch) look(now time.Time, how certainty) {
	w.follow()
	w.again = w.folder.scan(now, how, func(name string) bool { return w.pending[name] != nil })
	w.next = now.Add(w.interval())
}

// follow sees to it that the folder of that name is the one that is watched,
// whatever has become of the one before, and the folder above it where that is
// the one to hear from.
func (w *watch) follow() {
	dir, parent := w.folder.dir, filepath.Dir(w.folder.dir)
	status, err := os.Stat(dir)
	link, linkErr := os.Lstat(dir)
	above := err != nil || (linkErr == nil && link.Mode()&os.ModeSymlink != 0)
	if above {
		_ = w.notify.Add(parent) // if it is missing, too, lostRescan finds out
	} else if parent != dir {
		_ = w.notify.Remove(parent) // mostly it is not watched
	}
	if err != nil {
		w.watched = nil
		return
	}
	if w.watched != nil && os.SameFile(w.watched, status) {
		return
	}
	_ = w.notify.Remove(dir) // the watch of an earlier folder of that name
	w.watched = nil
	if err := w.notify.Add(dir); err != nil {
		if !w.warned {
			w.folder.log.Warn("folder of manifests is not watched, only looked at every second", "dir", dir, "err", err)
		}
		w.warned = true
		return
	}
	w.watched, w.warned = status, false
}
