package file

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// rewritten is a folder with one file, which a test reads when it likes.
type rewritten struct {
	*testing.T
	f   *folder
	l   *listener
	dir string
	now time.Time
}

const rewrittenFile = "a.yaml"

func newRewritten(t *testing.T) *rewritten {
	t.Helper()
	r := &rewritten{T: t, l: newListener(), dir: t.TempDir(), now: time.Now()}
	r.f = newFolder(Config{Dir: r.dir, Log: slog.New(slog.DiscardHandler)})
	write(t, r.dir, rewrittenFile, versionOf("10.96.0.1"))
	r.read(looked)
	return r
}

// versionOf is a Service at an address, with three endpoints.
func versionOf(ip string) string {
	return service("a", ip) + "---\n" + slice("a-1", "a", "10.0.0.1", "10.0.0.2", "10.0.0.3")
}

func (r *rewritten) read(how certainty) (again time.Time) {
	r.Helper()
	again = r.f.refresh(rewrittenFile, r.now, how)
	r.f.flush(r.now, r.l.put)
	return again
}

// stands checks that nothing of the Service has gone.
func (r *rewritten) stands(ip string) {
	r.Helper()
	n := 0
	if s := r.l.slices["default/a-1"]; s != nil {
		n = len(s.Endpoints)
	}
	if len(r.l.gone) > 0 || r.l.addressOf("a") != ip || n != 3 {
		r.Errorf("the Service is at %q with %d endpoints, want %s with 3; taken away: %v", r.l.addressOf("a"), n, ip, r.l.gone)
	}
}

// A notification is handled a moment later. By then the next writer may have truncated the
// file and written a part of it. What the notification says about the previous version does
// not hold for this one.
func TestNextWriterBeforeTheReading(t *testing.T) {
	whole := versionOf("10.96.0.2")
	for name, part := range map[string]string{
		"nothing":           "",
		"half a Service":    whole[:strings.Index(whole, "  ports:")],
		"one document":      whole[:strings.Index(whole, "---")],
		"a part of the end": strings.TrimSuffix(whole, "- addresses: [10.0.0.3]\n"),
	} {
		for _, how := range []certainty{isClosed, isWhole} {
			t.Run(name, func(t *testing.T) {
				r := newRewritten(t)
				f := open(t, r.dir, rewrittenFile, os.O_TRUNC)
				put(t, f, part)
				if r.read(how).IsZero() {
					t.Error("the file is not to be read again")
				}
				r.stands("10.96.0.1")
				put(t, f, whole[len(part):])
				closeFile(t, f)
				r.read(isClosed)
				r.stands("10.96.0.2")
			})
		}
	}
}

// A file that changes while it is read counts neither as settled nor as the version of the
// notification.
func TestChangeDuringTheReading(t *testing.T) {
	for name, how := range map[string]certainty{"closed": isClosed, "in place": isWhole, "left alone": looked} {
		t.Run(name, func(t *testing.T) {
			r := newRewritten(t)
			if how == looked { // its time to be left alone is over with the next reading
				write(t, r.dir, rewrittenFile, "")
				r.read(looked)
				r.now = r.now.Add(settle)
			}
			r.f.stampOf = func(status fs.FileInfo) stamp { // it is asked before the file is read
				r.f.stampOf = stampOf
				defer func() {
					at := time.Now().Add(time.Second) // a clock with a coarse resolution may not show the change
					write(t, r.dir, rewrittenFile, "")
					if err := os.Chtimes(filepath.Join(r.dir, rewrittenFile), at, at); err != nil {
						t.Fatal(err)
					}
				}()
				return stampOf(status)
			}
			again := r.read(how)
			r.stands("10.96.0.1")
			if again.IsZero() {
				t.Fatal("the file is not to be read again")
			}
			for range 3 { // no writer continues: the removal is intended
				r.now = r.now.Add(settle)
				r.read(looked)
			}
			if len(r.l.services) != 0 {
				t.Error("an empty file is never believed")
			}
		})
	}
}

// rewrite rewrites the file every 100 ms for the time d, as text or, every other
// time, as part. It reads the file each time.
func (r *rewritten) rewrite(d time.Duration, text, part string) {
	r.Helper()
	for end := r.now.Add(d); r.now.Before(end); {
		for _, s := range []string{part, text} {
			r.now = r.now.Add(50 * time.Millisecond)
			write(r.T, r.dir, rewrittenFile, s)
			r.read(isClosed)
		}
	}
}

// Of a file that is never left alone a deletion comes late, but it comes, and with it what
// else is new; what is missing in some of the readings stays.
func TestDeletionInFileThatIsNeverLeftAlone(t *testing.T) {
	both := versionOf("10.96.0.1") + "---\n" + service("z", "10.96.0.9") + "---\n" + slice("z-1", "z", "10.0.0.4")
	one := service("a", "10.96.0.3") + "---\n" + slice("a-1", "a", "10.0.0.1", "10.0.0.2", "10.0.0.3")
	part := one[:strings.Index(one, "---")]
	r := newRewritten(t)
	write(t, r.dir, rewrittenFile, both)
	r.read(isClosed)
	r.rewrite(3*neverLeft, both, versionOf("10.96.0.1"))
	r.stands("10.96.0.1")
	r.rewrite(neverLeft/2, one, part)
	r.now = r.now.Add(3 * settle) // nothing was read during that time, so nothing is known of it
	r.rewrite(neverLeft-200*time.Millisecond, one, part)
	r.stands("10.96.0.1")
	r.now = r.now.Add(300 * time.Millisecond)
	write(t, r.dir, rewrittenFile, part) // what this one lacks was there just now
	r.read(isClosed)
	write(t, r.dir, rewrittenFile, one+strings.Repeat("# more\n", 100)) // it has not become shorter
	r.read(stillOpen)
	r.stands("10.96.0.1")
	r.read(isClosed)
	if len(r.l.gone) != 2 || r.l.addressOf("a") != "10.96.0.3" || r.l.slices["default/a-1"] == nil || r.l.addressOf("z") != "" {
		t.Errorf("gone: %v; a is at %q, z at %q", r.l.gone, r.l.addressOf("a"), r.l.addressOf("z"))
	}
}
