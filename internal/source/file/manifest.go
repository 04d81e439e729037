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

// manifest is the state of one file.
type manifest struct {
	name     string
	modified time.Time
	stamp    stamp // an equal stamp proves that the file is unchanged; zero if nothing does
	seen     stamp // of the last read
	loaded   bool  // some content has been read from it
	entire   bool  // the last content had no part that could not be read
	writing  bool  // another program had it open for writing, and had written recently
	sure     bool  // it was complete at least once
	size     int   // of the last valid content
	cut      bool  // the last valid content ended in the middle of a line

	objects  []*object          // of the last valid content, sorted by id
	docs     map[uint64]*parsed // of the last valid content, by digest of the text
	problems []model.Problem    // of the file, not of its objects
	told     []model.Problem    // those of problems that were delivered

	hold    hold
	lacking lacking
	missing time.Time // since when the file is missing; zero if it exists
}

// origin returns the name of the file in Problems.
func (m *manifest) origin() string { return "file " + m.name }

// unreadable records why the file cannot be read. The previous content stays in
// use.
func (m *manifest) unreadable(path string, err error) (again time.Time) {
	m.stamp, m.hold, m.problems = stamp{}, hold{}, []model.Problem{{
		Object: m.origin(), Reason: "cannot be read: " + strings.TrimPrefix(err.Error(), "open "+path+": "),
	}}
	m.sure = m.sure || errors.Is(err, errNotRegular) // it can never be read, so Synced does not wait for it
	return time.Time{}
}

// content is the result of one read of a file.
type content struct {
	objects    []*object
	docs       map[uint64]*parsed
	problems   []model.Problem
	ignored    []string
	unreadable bool // a document could not be read at all
	undefined  bool // an object could not be read
	size       int
	cut        bool // it ends in the middle of a line
}

// parse reads a file's text. Documents whose text is known from the previous read
// are not decoded again, so that one changed line of a file of 10 000 Services
// costs one document. The objects of these documents keep their identity.
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
					Reason: fmt.Sprintf("%s is defined twice in this file: the definition in line %d is used", o.id, first),
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

// readAll decodes the documents. It decodes those that are not known from the
// previous read on all processors in parallel, because YAML is slow and startup
// waits for the first read of 10 000 Services. It sets the documents' digests.
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

// accept makes content the current content of the file and returns the previous
// objects. If the file cannot be read, its last valid content stays. If an object
// cannot be read, its last valid definition stays. At the first read there is no
// previous content, and accept uses the part that could be read.
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
