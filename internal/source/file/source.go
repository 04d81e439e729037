package file

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/fairlead/fairlead/internal/model"
)

// Name is what the source calls itself in model.Event.Synced.
const Name = "file"

// Config says what to read.
type Config struct {
	Dir      string
	NodeName string        // only this Node's manifest is delivered
	Headless bool          // deliver headless Services and their slices, and those of other proxies, for DNS
	Rescan   time.Duration // how often to look without having been told; 0 = 30 s
	Log      *slog.Logger  // nil = slog.Default
}

// Source reads a folder of manifests. See New.
type Source struct{ config Config }

// New makes a Source; nothing is read before Run.
func New(c Config) *Source {
	if c.Rescan <= 0 {
		c.Rescan = 30 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return &Source{config: c}
}

// Run reads the folder, delivers what it holds and then Synced, and goes on
// delivering what changes until ctx ends, when it returns nil. A folder that is
// not there is a Problem and waited for; an error is returned only if there is
// no way to watch anything. The sink is called from this goroutine alone.
func (s *Source) Run(ctx context.Context, sink func(model.Event)) error {
	if s.config.Dir == "" {
		return errors.New("watch folder of manifests: its name is empty")
	}
	dir, err := filepath.Abs(s.config.Dir)
	if err != nil {
		return fmt.Errorf("watch folder %s: %w", s.config.Dir, err)
	}
	s.config.Dir = dir
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch folder %s: %w", dir, err)
	}
	defer watcher.Close() //nolint:errcheck // nothing is lost with it
	w := &watch{
		notify: watcher, folder: newFolder(s.config), sink: sink,
		rescan: s.config.Rescan, pending: make(map[string]*burst),
	}
	return w.run(ctx)
}
