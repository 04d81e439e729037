package file

import (
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// settle is how long a file that looks half written, or that is missing, must
	// stay as it is before it is believed.
	settle = 500 * time.Millisecond
	// openPatience is the same for a file that its writer has not closed yet: a
	// shell empties the file first, and the program may take its time.
	openPatience = 10 * time.Second
	// neverLeft is how long all readings must lack an object before that is believed of
	// a file which is rewritten so often that it is never left alone.
	neverLeft = 10 * time.Second
)

// certainty tells what is known of a file's writer, the surer the higher.
type certainty uint8

const (
	looked    certainty = iota // nothing: the file was found by looking
	stillOpen                  // it has not written for some time, and not closed the file
	isClosed                   // it has closed the file, and may open it again to append; or has removed it
	isWhole                    // it has put the file in place whole, or has left it alone for long enough
)

// hold keeps a reading from being believed.
type hold struct {
	until time.Time // zero: there is none
	mark  stamp     // of the file that was read
}

// still reports until when the file is to be left alone; zero if it has been for
// long enough. A file that has changed meanwhile is left alone
// anew, and not read: to read a large one again with each piece that is added to
// it would be work without end.
func (h *hold) still(mark stamp, now time.Time) (until time.Time) {
	if mark != h.mark {
		*h = hold{until: now.Add(settle), mark: mark}
	}
	if now.Before(h.until) {
		return h.until
	}
	return time.Time{}
}

// halfWritten reports whether what was read of a file looks like a part of what its
// writer means: then what the file said before stays, until it has been left
// alone. Nothing is held back of a file that has said nothing yet.
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

// lackedBy returns the objects of before that are missing, or have lost all their
// ports or endpoints; both lists are sorted. A file that ends too early lacks its
// last objects, and the tail of the last one that it has.
func lackedBy(now, before []*object) (out []id) {
	for _, o := range before {
		at, ok := slices.BinarySearchFunc(now, o.id, func(e *object, k id) int { return e.id.compare(k) })
		if !ok || o.emptied(now[at]) {
			out = append(out, o.id)
		}
	}
	return out
}

// lacking is what all of the last readings lacked, each of a file that its writer had closed.
type lacking struct {
	since map[id]time.Time
	last  time.Time // of these readings
}

// goOn notes what one more reading lacks, and tells whether it has been lacking for so long,
// without a pause, that it is gone: what a writer has yet to append comes sooner.
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
// though o has.
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

// beingWritten reports whether somebody has the file open to write. The kernel
// grants a lease for reading only if nobody has; where it grants none at all, as
// on some network file systems, nobody is assumed to.
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
