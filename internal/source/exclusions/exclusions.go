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

// Name is what the source calls itself in model.Event.Synced.
const Name = "offload exclusions"

const (
	// look is how often the file is read without notification: of a link to elsewhere nothing tells.
	look = 10 * time.Second
	// settle is how long a new content must stay before it counts: a file that is written in place is empty first.
	settle = 100 * time.Millisecond
	// retry is the pause before another attempt to watch the folder.
	retry = time.Second
	// maxBytes bounds what is read.
	maxBytes = 8 << 20
	// maxPrefixes is how many the kernel is given, by family.
	maxPrefixes = 1 << 16
)

// Watcher watches one file. See New.
type Watcher struct {
	path   string
	object string // what Problems are about
	told   string // what was delivered last was made of this: a content, or an error
	synced bool
	held   bool // a content was delivered once
	sink   func(model.Event)
}

// New makes a Watcher of a file; nothing is read before Run.
func New(path string) *Watcher { return &Watcher{path: path, object: "file " + path} }

// everything excludes all: what nobody could read yet may name anybody.
func everything() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
}

// Run delivers what the file says, then Synced, then every change, until ctx ends, when it returns nil. A file that cannot be
// read is a Problem: what was read before holds, and if nothing was, everything is excluded. The sink is called from this
// goroutine alone.
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

// closed returns up a watcher that cannot watch.
func closed(w *fsnotify.Watcher) *fsnotify.Watcher {
	if w != nil {
		_ = w.Close()
	}
	return nil
}

// follow reads the file again and again until the watch breaks; without one, once after a pause.
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

// read delivers the file's content if it is another one.
func (w *Watcher) read(changed time.Time) {
	f, err := os.Open(w.path)
	if err != nil {
		w.fail(err)
		return
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", w.path)
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
	if n < len(content) { // it became shorter just now, and there will be a notification
		w.fail(fmt.Errorf("read %s: %w", w.path, err))
		return
	}
	w.deliver(string(content), changed)
}

// fail reports that the file cannot be read.
func (w *Watcher) fail(err error) {
	hold, event := "what was read before holds", model.Event{}
	if !w.held {
		hold, event.Exclusions = "nothing is accelerated until it can be", &model.Exclusions{Prefixes: everything()}
	}
	event.Problems = []model.Problem{{Kind: model.Unavailable, Object: w.object, Well: "read " + w.path + " again",
		Reason: fmt.Sprintf("cannot read the exclusions from acceleration, %s: %v", hold, err)}}
	w.tell(event, err.Error())
}

// deliver reports what the file says.
func (w *Watcher) deliver(text string, changed time.Time) {
	list, problems := parse(w.object, text)
	w.held = true
	if !w.synced {
		changed = time.Time{} // it is no change
	}
	w.tell(model.Event{Exclusions: &model.Exclusions{Prefixes: list}, Trigger: changed, Problems: problems}, "\x00"+text)
}

// tell returns an event to the sink if what it was made of is not what the last one was made of.
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
