package app

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// configLook is how often the config file is looked at without notification: of a
// link to elsewhere nothing tells.
const configLook = 10 * time.Second

// configSettle is how long a new content must stay before it counts: a file that
// is written in place is empty first.
const configSettle = 100 * time.Millisecond

// watchConfig ends with an error when the config file's content is not what was
// read at the start any more, so that the process is started again with the new
// one: kube-proxy's way. The folder is watched, for editors and ConfigMap mounts
// replace the file.
func watchConfig(ctx context.Context, path string, read [sha256.Size]byte) error {
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
			if now != read && time.Since(since) >= configSettle {
				return fmt.Errorf("%s changed: ending, to be started again with it", path)
			}
			if now != read {
				next.Reset(configSettle)
			}
		}
	}
}
