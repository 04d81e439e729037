package iptables

import "sync"

// turn decides whether a Restore or a reading has x_tables. The kernel gives one table after the other, and takes some tenths
// of a second to copy a large one. So a reading does not begin beside a Restore, and one that has begun is cut off: what
// is written is waited for by somebody, what is read may take its time.
type turn struct {
	restores sync.RWMutex // held by a Restore; a reading begins under it
	mu       sync.Mutex
	copies   map[*copyRoom]bool // that the kernel is at work on: whether they have been cut off
}

// cutsAtMost bounds how often one reading gives way, so that it ends also where changes never do.
const cutsAtMost = 8

// Lock begins a Restore.
func (t *turn) Lock() {
	t.restores.Lock()
	t.mu.Lock()
	defer t.mu.Unlock()
	for room := range t.copies {
		room.cut()
		t.copies[room] = true
	}
}

// Unlock ends a Restore.
func (t *turn) Unlock() { t.restores.Unlock() }

// begin waits until no Restore is under way. From then on the copy may be cut off, if it gives way.
func (t *turn) begin(room *copyRoom, givesWay bool) {
	t.restores.RLock()
	defer t.restores.RUnlock()
	if !givesWay {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.copies == nil {
		t.copies = map[*copyRoom]bool{}
	}
	t.copies[room] = false
}

// end reports whether the copy was cut off. It cannot be any more.
func (t *turn) end(room *copyRoom) (cut bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	cut = t.copies[room]
	delete(t.copies, room)
	return cut
}
