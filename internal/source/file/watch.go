package file

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/fairlead/fairlead/internal/model"
)

const (
	// quiet is how long a file must not be written to before it is read. Programs
	// write small files in one go; what matters is to be behind the last byte.
	quiet = 3 * time.Millisecond
	// patience bounds the wait for a file that is written to all the time.
	patience = 250 * time.Millisecond
	// lostRescan is how often a folder that is not there is looked for; the
	// folder above it may be missing, too, and then nothing tells.
	lostRescan = time.Second
)

// everything is the name under which a look at the whole folder is pending.
const everything = ""

// burst is a number of notifications of one file that are answered by one reading.
type burst struct{ first, last time.Time }

// due tells when to read.
func (b *burst) due() time.Time { return sooner(b.last.Add(quiet), b.first.Add(patience)) }

// notifier is what is needed of fsnotify.Watcher.
type notifier interface {
	Add(path string) error
	Remove(path string) error
}

var _ notifier = (*fsnotify.Watcher)(nil)

// unwatched is a notifier that never tells anything.
type unwatched struct{}

func (unwatched) Add(string) error    { return nil }
func (unwatched) Remove(string) error { return nil }

// watch is the loop of Source.Run.
type watch struct {
	notify  notifier
	events  <-chan fsnotify.Event // nil if there is none to come
	errors  <-chan error
	folder  *folder
	sink    func(model.Event)
	rescan  time.Duration
	pending map[string]*burst

	watched os.FileInfo // the folder that notify watches; nil if none
	warned  bool        // that it cannot be watched
	next    time.Time   // of the look that nobody asks for
	again   time.Time   // of the look that a reading asked for; zero if none did
}

func (w *watch) run(ctx context.Context) error {
	w.look(time.Now())
	w.folder.flush(time.Now(), w.sink)
	w.sink(model.Event{Synced: Name, Received: time.Now()})

	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(time.Until(w.wake()))
		select {
		case <-ctx.Done():
			return nil
		case event := <-w.events:
			w.note(event)
		case <-w.errors: // the queue has overflowed: what was in it is unknown
			w.watched = nil
			w.mark(everything)
		case <-timer.C:
			w.read(time.Now())
		}
	}
}

// wake tells when there is something to do.
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
func (w *watch) note(event fsnotify.Event) {
	if event.Op == fsnotify.Chmod {
		return // touches and attribute changes; if it made a file readable, the rescan sees it
	}
	dir, name := filepath.Dir(event.Name), filepath.Base(event.Name)
	switch {
	case event.Name == w.folder.dir: // removed, renamed, or made again
		if event.Has(fsnotify.Remove | fsnotify.Rename) {
			w.watched, w.folder.replaced = nil, true // the next one may have the same inode
		}
		w.mark(everything)
	case dir != w.folder.dir: // the folder above, about something else
	case isManifest(name):
		w.mark(name)
	case strings.HasPrefix(name, ".."):
		w.mark(everything) // ConfigMap mounts swap the link ..data
	}
}

func (w *watch) mark(name string) {
	now := time.Now()
	if b := w.pending[name]; b != nil {
		b.last = now
		return
	}
	w.pending[name] = &burst{first: now, last: now}
}

// read reads what is due, and delivers what comes of it.
func (w *watch) read(now time.Time) {
	whole := w.pending[everything]
	if !now.Before(sooner(w.next, w.again)) || (whole != nil && !now.Before(whole.due())) {
		clear(w.pending)
		w.look(now)
	}
	for name, b := range w.pending {
		if name == everything || now.Before(b.due()) {
			continue
		}
		delete(w.pending, name)
		w.again = sooner(w.again, w.folder.refresh(name, now, true))
	}
	w.folder.flush(time.Now(), w.sink)
}

// look reads whatever in the folder has changed.
func (w *watch) look(now time.Time) {
	w.follow()
	w.again = w.folder.scan(now)
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
