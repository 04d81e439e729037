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
	// quiet is how long to wait after the last notification of a file, so that
	// several changes in a row cause one read.
	quiet = 3 * time.Millisecond
	// patience limits the wait for a file that is written continuously.
	patience = 250 * time.Millisecond
	// lostRescan is how often to check for a folder that does not exist. The
	// folder above it may be missing, too. Then there are no notifications.
	lostRescan = time.Second
)

// everything is the key in pending for a scan of the whole folder.
const everything = ""

// burst is a series of notifications of one file that one read handles.
type burst struct {
	first, last time.Time
	open        bool // a writer has written, and has not closed the file
	how         certainty
}

// due returns the time of the read.
func (b *burst) due() time.Time {
	if b.open {
		return b.last.Add(settle)
	}
	return sooner(b.last.Add(quiet), b.first.Add(patience))
}

// notifier is the part of inotify that watch uses.
type notifier interface {
	Add(path string) error
	Remove(path string) error
}

var _ notifier = (*inotify)(nil)

// unwatched is a notifier that watches nothing.
type unwatched struct{}

func (unwatched) Add(string) error    { return nil }
func (unwatched) Remove(string) error { return nil }

// watch is the loop of Source.Run.
type watch struct {
	notify  notifier
	changes <-chan change // nil if no notifications are expected
	lost    <-chan struct{}
	folder  *folder
	sink    func(model.Event)
	rescan  time.Duration
	pending map[string]*burst

	watched os.FileInfo // the folder that notify watches; nil if none
	warned  bool        // the failure to watch the folder has been logged
	listed  bool        // Listed has been delivered
	next    time.Time   // of the next periodic scan
	again   time.Time   // of the scan that a read requested; zero if none did
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
		case <-w.lost: // the queue has overflowed, and the notifications in it are lost
			w.watched = nil
			clear(w.pending)
			w.markAll(looked)
		case <-timer.C:
			w.read(time.Now())
		}
	}
}

// deliver delivers what the last reads have changed. It delivers Listed once, when a part of the folder is known,
// and Synced once, when all of it is.
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

// wake returns the time of the next read or scan.
func (w *watch) wake() time.Time {
	at := sooner(w.next, w.again)
	for _, b := range w.pending {
		at = sooner(at, b.due())
	}
	return at
}

// interval returns the time to the next periodic scan.
func (w *watch) interval() time.Duration {
	if w.watched == nil || w.folder.lost != "" {
		return min(lostRescan, w.rescan)
	}
	return w.rescan
}

// note handles one notification: it marks the file that the notification is about
// as pending.
func (w *watch) note(c change) {
	dir, name := filepath.Dir(c.path), filepath.Base(c.path)
	switch {
	case c.path == w.folder.dir: // removed, renamed, or recreated
		if c.what == removed || c.what == movedAway {
			w.watched, w.folder.replaced = nil, true // the next one may have the same inode
		}
		w.markAll(looked)
	case dir != w.folder.dir: // the notification is about another name in the folder above
	case isManifest(name):
		w.mark(name, c.what)
	case name == "..data" && c.what == movedIn: // this rename is how a ConfigMap mount switches to the next version
		w.markAll(isWhole)
	case strings.HasPrefix(name, ".."):
		w.markAll(looked)
	}
}

// markAll makes a scan of the whole folder pending.
func (w *watch) markAll(how certainty) {
	now := time.Now()
	b := w.pending[everything]
	if b == nil {
		b = &burst{first: now}
		w.pending[everything] = b
	}
	b.last, b.how = now, max(b.how, how)
}

// mark makes a read of one file pending.
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
	case movedAway: // an editor makes a backup like this: the next version follows in a moment
		b.open, b.how = false, looked
	}
}

// isLink reports whether a new name is a link to a file that has another name, too.
// Such a file need not be written and closed after the name appears.
func isLink(path string) bool {
	status, err := os.Lstat(path)
	if err != nil {
		return false
	}
	sys, ok := status.Sys().(*syscall.Stat_t)
	return status.Mode()&os.ModeSymlink != 0 || (ok && sys.Nlink > 1)
}

// read reads the files that are due, runs the scan if it is due, and delivers the
// changes.
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

// look scans the folder and reads what has changed, except the files that have
// pending notifications.
func (w *watch) look(now time.Time, how certainty) {
	w.follow()
	w.again = w.folder.scan(now, how, func(name string) bool { return w.pending[name] != nil })
	w.next = now.Add(w.interval())
}

// follow ensures that the folder that has the name dir now is watched, even if it
// replaces another one. If the folder is missing or a symbolic link, it also
// watches the folder above.
func (w *watch) follow() {
	dir, parent := w.folder.dir, filepath.Dir(w.folder.dir)
	status, err := os.Stat(dir)
	link, linkErr := os.Lstat(dir)
	above := err != nil || (linkErr == nil && link.Mode()&os.ModeSymlink != 0)
	if above {
		_ = w.notify.Add(parent) // if it is missing, too, lostRescan finds out
	} else if parent != dir {
		_ = w.notify.Remove(parent) // usually it is not watched
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
			w.folder.log.Warn("cannot watch the folder of manifests; reading it every second instead", "dir", dir, "err", err)
		}
		w.warned = true
		return
	}
	w.watched, w.warned = status, false
}
