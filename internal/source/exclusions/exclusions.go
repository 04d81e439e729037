package exclusions

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/fairlead/fairlead/internal/model"
)

// Name is the source's name in model.Event.Synced.
const Name = "offload exclusions"

const (
	// look is how often the file is read without a notification: no notification reports a change of
	// a file that the path only links to.
	look = 10 * time.Second
	// settle is how long new content must stay unchanged before it is read: a file that is written in place is
	// empty first.
	settle = 100 * time.Millisecond
	// retry is the pause before a retry to watch the folder.
	retry = time.Second
	// maxBytes limits the size of the file.
	maxBytes = 8 << 20
	// maxPrefixes is the limit of prefixes that are handed to the kernel.
	maxPrefixes = 1 << 16
)

// Watcher watches one file. See New.
type Watcher struct {
	path   string
	object string // Object of the Problems
	told   string // the content or error that the last delivered event was made of
	synced bool
	held   bool // some content has been delivered
	sink   func(model.Event)
}

// New returns a Watcher of a file. It reads nothing before Run.
func New(path string) *Watcher { return &Watcher{path: path, object: "file " + path} }

// everything returns prefixes that exclude all addresses: a file that has never
// been read may name any address.
func everything() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
}

// Run delivers the content of the file, then Synced, then every change, until ctx ends. Then it returns nil. A file that
// cannot be read is a Problem: the content that was read before stays in use, and if there is none, all addresses are
// excluded. The sink is called from this goroutine alone.
func (w *Watcher) Run(ctx context.Context, sink func(model.Event)) error {
	w.sink = sink
	for ctx.Err() == nil {
		notes, err := fsnotify.NewWatcher()
		if err == nil {
			err = notes.Add(filepath.Dir(w.path)) // editors and ConfigMap mounts replace the file
		}
		if err != nil {
			w.fail(err)
			notes = closed(notes)
		}
		w.follow(ctx, notes)
		if notes != nil {
			_ = notes.Close() // read side only: nothing to lose
		}
	}
	return nil
}

// closed closes a watcher that cannot watch the folder. It returns nil.
func closed(w *fsnotify.Watcher) *fsnotify.Watcher {
	if w != nil {
		_ = w.Close()
	}
	return nil
}

// follow reads the file after each notification and periodically until the watch breaks. Without
// a watcher it reads the file once after a pause.
func (w *Watcher) follow(ctx context.Context, notes *fsnotify.Watcher) {
	if notes == nil {
		select {
		case <-ctx.Done():
		case <-time.After(retry):
			w.read(time.Time{})
		}
		return
	}
	next := time.NewTimer(0)
	defer next.Stop()
	var changed time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-notes.Errors:
			if !open {
				return
			}
		case _, open := <-notes.Events:
			if !open {
				return
			}
			changed = time.Now()
			next.Reset(settle)
		case <-next.C:
			w.read(changed)
			changed = time.Time{}
			next.Reset(look)
		}
	}
}

// read delivers the file's content if it differs from what was delivered.
func (w *Watcher) read(changed time.Time) {
	f, err := os.Open(w.path)
	if err != nil {
		w.fail(err)
		return
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", w.path)
	}
	if err == nil && info.Size() > maxBytes {
		err = fmt.Errorf("%s is larger than %d MiB", w.path, maxBytes>>20)
	}
	if err != nil {
		w.fail(err)
		return
	}
	content := make([]byte, info.Size())
	n, err := f.ReadAt(content, 0)
	if n < len(content) { // the file was truncated during the read, and a notification follows
		w.fail(fmt.Errorf("read %s: %w", w.path, err))
		return
	}
	w.deliver(string(content), changed)
}

// fail delivers the Problem that the file cannot be read.
func (w *Watcher) fail(err error) {
	hold, event := "the last content that was read stays in effect", model.Event{}
	if !w.held {
		hold, event.Exclusions = "nothing is accelerated until the file can be read", &model.Exclusions{Prefixes: everything()}
	}
	event.Problems = []model.Problem{{Kind: model.Unavailable, Object: w.object, Well: "read " + w.path + " again",
		Reason: fmt.Sprintf("cannot read the exclusions from acceleration, %s: %v", hold, err)}}
	w.tell(event, err.Error())
}

// deliver delivers the parsed content of the file.
func (w *Watcher) deliver(text string, changed time.Time) {
	list, problems := parse(w.object, text)
	w.held = true
	if !w.synced {
		changed = time.Time{} // the initial content is not a change
	}
	w.tell(model.Event{Exclusions: &model.Exclusions{Prefixes: list}, Trigger: changed, Problems: problems}, "\x00"+text)
}

// tell delivers an event, unless it is made of the same content or error as the last one.
func (w *Watcher) tell(event model.Event, of string) {
	if w.synced && of == w.told {
		return
	}
	w.told = of
	event.Origin, event.Received = w.object, time.Now()
	w.sink(event)
	if !w.synced {
		w.synced = true
		w.sink(model.Event{Synced: Name, Received: event.Received})
	}
}
