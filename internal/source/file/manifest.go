package file

import (
	"errors"
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// manifest is what is known of one file.
type manifest struct {
	name     string
	modified time.Time
	stamp    stamp // proves that there is nothing new; zero if nothing does
	seen     stamp // of the last reading
	loaded   bool  // some content has been read from it
	entire   bool  // the last content had no part that could not be read
	writing  bool  // somebody had it open to write, and had written not long before
	sure     bool  // and once it was all that its writer had to say
	size     int   // of the last good content
	cut      bool  // that ended in the middle of a line

	objects  []*object          // of the last good content, sorted by id
	docs     map[uint64]*parsed // of the last good content, by digest of the text
	problems []model.Problem    // of the file, not of its objects
	told     []model.Problem    // of these, what was delivered

	hold    hold
	lacking lacking
	missing time.Time // since when it is; zero if it is there
}

// origin is how the file is called in Problems.
func (m *manifest) origin() string { return "file " + m.name }

// unreadable notes why the file cannot be read; what it said before stays.
func (m *manifest) unreadable(path string, err error) (again time.Time) {
	m.stamp, m.hold, m.problems = stamp{}, hold{}, []model.Problem{{
		Object: m.origin(), Reason: "cannot be read: " + strings.TrimPrefix(err.Error(), "open "+path+": "),
	}}
	m.sure = m.sure || errors.Is(err, errNotRegular) // nobody has ever read it
	return time.Time{}
}

// content is what one reading of a file gives.
type content struct {
	objects    []*object
	docs       map[uint64]*parsed
	problems   []model.Problem
	ignored    []string
	unreadable bool // a document could not be read at all
	undefined  bool // an object could not be
	size       int
	cut        bool // it ends in the middle of a line
}

// parse reads a file's text. Documents whose text is known from before are not
// decoded again, so that one changed line of a file of 10 000 Services costs one
// document; and their objects keep their identity.
func parse(r *reader, seed maphash.Seed, known *manifest, data []byte) content {
	docs := split(data)
	c := content{docs: make(map[uint64]*parsed, len(docs)), objects: make([]*object, 0, len(docs)), size: len(data)}
	c.cut = len(docs) > 0 && !docs[len(docs)-1].json && data[len(data)-1] != '\n'
	lines := make(map[id]int, len(docs))
	for i, p := range readAll(r, seed, known, docs) {
		d := docs[i]
		c.docs[d.digest] = p
		if p.kindless && len(known.objects) == 0 && ofOtherProgram(known.name) != "" {
			c.problems = append(c.problems, model.Problem{Object: known.origin(), Reason: ofOtherProgram(known.name)})
			continue
		}
		c.unreadable = c.unreadable || p.unreadable
		c.ignored = append(c.ignored, p.ignored...)
		for _, wrong := range p.issues {
			c.problems = append(c.problems, model.Problem{
				Object: fmt.Sprintf("%s:%d", known.origin(), d.line+wrong.line), Reason: wrong.text,
			})
		}
		for _, o := range p.objects {
			if first, twice := lines[o.id]; twice {
				c.problems = append(c.problems, model.Problem{
					Object: fmt.Sprintf("%s:%d", known.origin(), d.line),
					Reason: fmt.Sprintf("%s is defined twice in this file: the definition in line %d counts", o.id, first),
				})
				continue
			}
			lines[o.id] = d.line
			c.undefined = c.undefined || o.suspect && o.empty()
			c.objects = append(c.objects, o)
		}
	}
	slices.SortFunc(c.objects, func(a, b *object) int { return a.id.compare(b.id) })
	return c
}

// readAll reads the documents, those that are not known from before with all
// processors: YAML is slow, and the first reading of 10 000 Services is what the
// start waits for. It sets the documents' digests.
func readAll(r *reader, seed maphash.Seed, known *manifest, docs []document) []*parsed {
	out := make([]*parsed, len(docs))
	var fresh []int
	for i := range docs {
		d := &docs[i]
		d.digest = maphash.Bytes(seed, d.text)
		if p, ok := known.docs[d.digest]; ok {
			out[i] = p
		} else {
			fresh = append(fresh, i)
		}
	}
	var next atomic.Int64
	var readers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (len(fresh)+15)/16) {
		readers.Go(func() {
			for n := next.Add(1); n <= int64(len(fresh)); n = next.Add(1) {
				i := fresh[n-1]
				out[i] = r.read(docs[i])
			}
		})
	}
	readers.Wait()
	return out
}

// accept makes content what the file says, and gives the objects of before. Of a
// file that cannot be read, the last good content stays; of an object that cannot
// be, its last good definition. At the first reading there is none, and what can
// be read is better than nothing.
func (m *manifest) accept(c *content) (before []*object) {
	before = m.objects
	m.problems = c.problems
	if c.unreadable && m.loaded {
		return before
	}
	for i, o := range c.objects {
		if !o.suspect {
			continue
		}
		if at, ok := slices.BinarySearchFunc(before, o.id, func(e *object, k id) int { return e.id.compare(k) }); ok && !before[at].suspect {
			c.objects[i] = before[at]
			m.problems = append(m.problems, o.problems...)
		}
	}
	m.objects, m.docs, m.size, m.cut = c.objects, c.docs, c.size, c.cut
	m.loaded = m.loaded || !c.unreadable
	return before
}
