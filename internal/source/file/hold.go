package file

import (
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// settle is how long a file that seems to be half written, or that is
	// missing, must stay unchanged before its state is accepted.
	settle = 500 * time.Millisecond
	// openPatience is the same for a file that its writer has not closed yet. A
	// shell truncates the file first, and the program may take its time.
	openPatience = 10 * time.Second
	// neverLeft is how long every read must lack an object before it counts as removed
	// from a file that is rewritten so often that it never settles.
	neverLeft = 10 * time.Second
)

// certainty is what is known of a file's writer. A higher value means more
// certainty.
type certainty uint8

const (
	looked    certainty = iota // nothing is known: the file was found by a scan
	stillOpen                  // the writer has not written for some time, and has not closed the file
	isClosed                   // the writer has closed the file, and may open it again to append; or the file was removed
	isWhole                    // the file was put in place whole, or has not changed for long enough
)

// hold delays the acceptance of a read.
type hold struct {
	until time.Time // zero: no hold
	mark  stamp     // of the file that was read
}

// still returns the time until which the hold lasts, zero if it has expired. If the
// file has changed since the last call, the hold starts again and the file is not
// read. Reading a large file after each piece that is appended to it would never
// end.
func (h *hold) still(mark stamp, now time.Time) (until time.Time) {
	if mark != h.mark {
		*h = hold{until: now.Add(settle), mark: mark}
	}
	if now.Before(h.until) {
		return h.until
	}
	return time.Time{}
}

// halfWritten reports whether the content that was read seems to be only a part of
// what its writer intends to write. Then the previous content stays in use until
// the file has settled. The first content of a file is never held back.
func (m *manifest) halfWritten(c *content, now time.Time, how certainty) bool {
	switch {
	case !m.loaded || how == isWhole:
		return false
	case how < isClosed && c.size < m.size, c.unreadable, c.cut && !m.cut:
		return true
	}
	missing := lackedBy(c.objects, m.objects)
	return len(missing) > 0 && (how < isClosed || !m.lacking.goOn(missing, now))
}

// lackedBy returns the ids of the previous objects that are missing now, or that
// have lost all their ports or endpoints. Both lists are sorted. A truncated file
// lacks its last objects, and the tail of the last object that it holds.
func lackedBy(now, before []*object) (out []id) {
	for _, o := range before {
		at, ok := slices.BinarySearchFunc(now, o.id, func(e *object, k id) int { return e.id.compare(k) })
		if !ok || o.emptied(now[at]) {
			out = append(out, o.id)
		}
	}
	return out
}

// lacking records what all of the last reads lacked. It only covers reads of a file that its
// writer had closed.
type lacking struct {
	since map[id]time.Time
	last  time.Time // time of the last of these reads
}

// goOn records what one more read lacks. It reports whether all of that has been lacking
// without a pause for neverLeft, so that it counts as removed: a writer that still intends
// to append does so sooner.
func (l *lacking) goOn(missing []id, now time.Time) (gone bool) {
	pause := now.Sub(l.last) > 2*settle
	since := make(map[id]time.Time, len(missing))
	gone = true
	for _, k := range missing {
		at, before := l.since[k]
		if !before || pause {
			at = now
		}
		since[k] = at
		gone = gone && now.Sub(at) >= neverLeft
	}
	l.since, l.last = since, now
	return gone
}

// emptied reports whether later, the same object, has no ports or no endpoints
// though o has some.
func (o *object) emptied(later *object) bool {
	switch {
	case o.service != nil && later.service != nil:
		return len(o.service.Ports) > 0 && len(later.service.Ports) == 0
	case o.slice != nil && later.slice != nil:
		return len(o.slice.Ports) > 0 && len(later.slice.Ports) == 0 ||
			len(o.slice.Endpoints) > 0 && len(later.slice.Endpoints) == 0
	}
	return false
}

// beingWritten reports whether another program has the file open for writing. The
// kernel grants a read lease only if no program has. Some network file systems
// grant no lease at all. There the result is false.
func beingWritten(f *os.File) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	var answer error
	err = conn.Control(func(fd uintptr) {
		if _, answer = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK); answer == nil {
			_, answer = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
		}
	})
	return err == nil && errors.Is(answer, unix.EAGAIN)
}
