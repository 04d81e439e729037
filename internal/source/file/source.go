package file

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// Name is the source's name in model.Event.Synced.
const Name = "file"

// Config is the configuration of a Source.
type Config struct {
	Dir      string
	NodeName string // only this Node's manifest is delivered
	Headless bool   // deliver headless Services and their slices, and those of other proxies, for DNS
	// LocalEndpoints allows endpoints on loopback addresses, which an API server does
	// not allow. Only clients on this machine can reach them.
	LocalEndpoints bool
	// EmptyDeletes: a folder without a manifest means that there is no Service.
	// Otherwise such a folder counts as not filled yet, and what an earlier run left
	// in the kernel stays.
	EmptyDeletes bool
	Rescan       time.Duration // how often to scan the folder without a notification; 0 = 30 s
	Log          *slog.Logger  // nil = slog.Default

	newWatcher func() (*inotify, error) // nil = newInotify
}

// Source reads a folder of manifests. See New.
type Source struct{ config Config }

// New returns a Source. It reads nothing before Run.
func New(c Config) *Source {
	if c.Rescan <= 0 {
		c.Rescan = 30 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.newWatcher == nil {
		c.newWatcher = newInotify
	}
	return &Source{config: c}
}

// Run reads the folder, delivers its content and then Synced, and delivers every
// change until ctx ends. Then it returns nil. If some file cannot be read yet, Run
// delivers Listed as soon as one object is known, and Synced only when every file has
// been read: a folder that is missing, empty or broken must not remove what an
// earlier run has left in the kernel. Run returns an error only if Dir is "". The
// sink is called from this goroutine alone.
func (s *Source) Run(ctx context.Context, sink func(model.Event)) error {
	if s.config.Dir == "" {
		return errors.New("watch folder of manifests: its name is empty")
	}
	dir, err := filepath.Abs(s.config.Dir)
	if err != nil {
		return fmt.Errorf("watch folder %s: %w", s.config.Dir, err)
	}
	s.config.Dir = dir
	w := &watch{folder: newFolder(s.config), sink: sink, rescan: s.config.Rescan, pending: make(map[string]*burst)}
	watcher, err := s.config.newWatcher()
	if err != nil {
		// inotify instances are few (fs.inotify.max_user_instances is 128). A
		// proxy must not fail because other programs use them all.
		s.config.Log.Warn("cannot watch the folder of manifests; reading it every second instead", "dir", dir, "err", err)
		w.notify, w.rescan = unwatched{}, min(w.rescan, lostRescan)
		return w.run(ctx)
	}
	defer watcher.Close() //nolint:errcheck // nothing is lost with it
	w.notify, w.changes, w.lost = watcher, watcher.changes, watcher.lost
	return w.run(ctx)
}
