package app

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/internal/config"
)

// configLook is how often the config file is read without a notification: the kernel does
// not notify of changes behind a symbolic link to another folder.
const configLook = 10 * time.Second

// configSettle is how long new content must be unchanged before it counts: a file that
// is written in place is empty first.
const configSettle = 100 * time.Millisecond

// configWatch is the file that is watched, with the digest of what was read at the start.
type configWatch struct {
	path  string
	read  [sha256.Size]byte
	check func(ctx context.Context, path string) error // returns an error if an agent would not start with the file's current content
	log   *slog.Logger
}

// checkConfig reads a config file as the start does, and tries the mode that it names as `fairlead migrate` does: a node whose kernel or image
// lacks that mode keeps the agent that runs.
func checkConfig(ctx context.Context, path string) error {
	flags := config.Register(pflag.NewFlagSet("", pflag.ContinueOnError))
	cfg, err := flags.LoadFile(path, config.Params{Modes: modesAndAuto(), Hostname: os.Hostname})
	if err != nil || cfg.Mode == auto {
		return err
	}
	mode := cfg.Mode
	if cfg.IPTablesBackend != "" {
		mode += "-" + cfg.IPTablesBackend
	}
	if tried := (&trial{cfg: cfg}).try(ctx, mode); !tried.Works && !tried.Unsure {
		return fmt.Errorf("mode %s cannot run on this node: %s", cfg.Mode, tried.Why)
	}
	return nil
}

// watchConfig ends with an error when the config file's content is not what was
// read at the start any more, so that the process is started again with the new
// one: kube-proxy's way. With a content that no agent would start with it goes on,
// and says so once: a slip in a file must not take the node's proxy away. The
// folder is watched, for editors and ConfigMap mounts replace the file.
func watchConfig(ctx context.Context, c configWatch) error {
	path, read := c.path, c.read
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", path, err)
	}
	defer func() { _ = w.Close() }() // read side only: nothing to lose
	if err := w.Add(filepath.Dir(path)); err != nil {
		return fmt.Errorf("watch %s: %w", path, err)
	}
	seen, since, next := read, time.Now(), time.NewTimer(0)
	defer next.Stop()
	var refused [sha256.Size]byte
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			return fmt.Errorf("watch %s: %w", path, err)
		case <-w.Events:
			next.Reset(0)
		case <-next.C: // at once first: the file may have changed between its reading and the watch
			next.Reset(configLook)
			data, err := os.ReadFile(path)
			if err != nil {
				continue // it is being replaced, or gone: what was read holds
			}
			now := sha256.Sum256(data)
			if now != seen {
				seen, since = now, time.Now()
			}
			switch {
			case now == read || now == refused:
			case time.Since(since) < configSettle:
				next.Reset(configSettle)
			default:
				if err := c.check(ctx, path); err != nil {
					refused = now
					c.log.Error("the changed config file is invalid; keeping the last valid configuration", "file", path, "error", err)
					continue
				}
				return fmt.Errorf("%s changed: exiting to be restarted with the new configuration", path)
			}
		}
	}
}
