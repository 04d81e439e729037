package app

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// watchConfig ends with an error when the config file's content changes, so that
// the process is started again with the new one: kube-proxy's way. The folder is
// watched, for editors and ConfigMap mounts replace the file.
func watchConfig(ctx context.Context, path string) error {
	before, err := digest(path)
	if err != nil {
		return err
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", path, err)
	}
	defer func() { _ = w.Close() }() // read side only: nothing to lose
	if err := w.Add(filepath.Dir(path)); err != nil {
		return fmt.Errorf("watch %s: %w", path, err)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			return fmt.Errorf("watch %s: %w", path, err)
		case <-w.Events:
			now, err := digest(path)
			if err == nil && now != before {
				return fmt.Errorf("%s changed: ending, to be started again with it", path)
			}
		}
	}
}

func digest(path string) ([sha256.Size]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("read config: %w", err)
	}
	return sha256.Sum256(data), nil
}
