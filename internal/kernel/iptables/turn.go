package iptables

import "sync"

// turn arbitrates the access to x_tables between Restores and reads. The kernel copies one table at a time, and takes some
// tenths of a second for a large one. So a read does not begin during a Restore, and a Restore aborts the reads in progress:
// a write is urgent, a read is not.
type turn struct {
	restores sync.RWMutex // held by a Restore; a reading begins under it
	mu       sync.Mutex
	copies   map[*copyRoom]bool // copies in progress: whether they have been cut
}

// cutsAtMost bounds how often one read is preempted, so that it ends even under continuous changes.
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

// begin waits until no Restore is in progress. After that a Restore may cut the copy, if givesWay is set.
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

// end reports whether the copy was cut. After end it cannot be cut.
func (t *turn) end(room *copyRoom) (cut bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	cut = t.copies[room]
	delete(t.copies, room)
	return cut
}
