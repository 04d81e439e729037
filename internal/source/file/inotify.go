package file

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// happening is the type of a change of a name in a folder.
type happening uint8

const (
	created   happening = iota // the name exists now, and the file may still be being written
	written                    // a writer, which has it open, has changed it
	closed                     // a writer has closed it
	movedIn                    // it was put in place by a rename, and so is whole
	movedAway                  // it was renamed
	removed                    // it was removed
)

// change is one notification.
type change struct {
	path string
	what happening
}

// inotify reports changes in folders. fsnotify, which other packages use, does not
// report that a writer has closed a file. That event distinguishes a whole file
// from one that is half written.
type inotify struct {
	fd      int
	file    *os.File // fd, for reads that end with Close
	changes chan change
	lost    chan struct{} // notify channel of size 1: changes were lost
	done    chan struct{}

	mu   sync.Mutex
	dirs map[int32]string // by watch descriptor
}

func newInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("open inotify: %w", err)
	}
	n := &inotify{
		fd: fd, file: os.NewFile(uintptr(fd), "inotify"), dirs: make(map[int32]string),
		changes: make(chan change), lost: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go n.read()
	return n, nil
}

// Add watches a folder. It does nothing if the folder is watched already.
func (n *inotify) Add(dir string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	wd, err := unix.InotifyAddWatch(n.fd, dir, unix.IN_ONLYDIR|unix.IN_CREATE|unix.IN_MODIFY|unix.IN_CLOSE_WRITE|
		unix.IN_MOVED_TO|unix.IN_MOVED_FROM|unix.IN_DELETE|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF)
	if err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	n.dirs[int32(wd)] = dir
	return nil
}

// Remove stops watching a folder. A folder that is not watched is not an error.
func (n *inotify) Remove(dir string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for wd, path := range n.dirs {
		if path != dir {
			continue
		}
		delete(n.dirs, wd)
		if _, err := unix.InotifyRmWatch(n.fd, uint32(wd)); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("stop watching %s: %w", dir, err)
		}
	}
	return nil
}

// Close ends the notifications.
func (n *inotify) Close() error {
	close(n.done)
	return n.file.Close()
}

// read forwards the notifications of the kernel until Close.
func (n *inotify) read() {
	buffer := make([]byte, 64<<10)
	for {
		size, err := n.file.Read(buffer)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				n.ring()
			}
			return
		}
		for rest := buffer[:size]; len(rest) >= unix.SizeofInotifyEvent; {
			wd, mask := int32(binary.NativeEndian.Uint32(rest)), binary.NativeEndian.Uint32(rest[4:])
			end := min(unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(rest[12:])), len(rest))
			name, _, _ := bytes.Cut(rest[unix.SizeofInotifyEvent:end], []byte{0})
			rest = rest[end:]
			if !n.tell(wd, mask, string(name)) {
				return
			}
		}
	}
}

// tell forwards one notification. It returns false after Close.
func (n *inotify) tell(wd int32, mask uint32, name string) bool {
	n.mu.Lock()
	dir, ok := n.dirs[wd]
	if mask&unix.IN_IGNORED != 0 {
		delete(n.dirs, wd)
	}
	n.mu.Unlock()
	if mask&unix.IN_Q_OVERFLOW != 0 {
		n.ring()
		return true
	}
	what, known := happeningOf(mask)
	if !ok || !known {
		return true
	}
	c := change{path: dir, what: what}
	if name != "" {
		c.path = filepath.Join(dir, name)
	}
	select {
	case n.changes <- c:
		return true
	case <-n.done:
		return false
	}
}

func happeningOf(mask uint32) (what happening, known bool) {
	switch {
	case mask&(unix.IN_DELETE|unix.IN_DELETE_SELF|unix.IN_UNMOUNT) != 0:
		return removed, true
	case mask&(unix.IN_MOVED_FROM|unix.IN_MOVE_SELF) != 0:
		return movedAway, true
	case mask&unix.IN_MOVED_TO != 0:
		return movedIn, true
	case mask&unix.IN_CLOSE_WRITE != 0:
		return closed, true
	case mask&unix.IN_MODIFY != 0:
		return written, true
	case mask&unix.IN_CREATE != 0:
		return created, true
	}
	return 0, false
}

func (n *inotify) ring() {
	select {
	case n.lost <- struct{}{}:
	default: // a notification is pending already
	}
}
